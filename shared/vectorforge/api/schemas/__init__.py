"""Bodies of requests and responses, a module for each door."""
