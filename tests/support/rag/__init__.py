"""Documents, chunks, queries and filters for tests."""
