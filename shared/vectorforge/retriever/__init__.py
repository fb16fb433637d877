"""Retrieval: a query in, ranked chunks out, without a language model."""
