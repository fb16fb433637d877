"""The API of the DocRag engine."""
