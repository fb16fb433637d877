"""Writes of documents, their chunks and their vectors."""
