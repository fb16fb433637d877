"""Bytes in; chunks with vectors out, switched in at once."""
