"""The routes, a module for each door."""
