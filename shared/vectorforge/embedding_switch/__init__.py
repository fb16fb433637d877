"""Switch of a collection from one embedding model to another."""
