"""Storage and search of chunks and their vectors."""
