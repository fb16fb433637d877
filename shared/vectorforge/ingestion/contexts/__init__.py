"""Contexts of chunks: words that place a chunk in its document, embedded and indexed with it, never returned.

A model writes them (``writer``), in calls that share the document as the beginning of their prompt
(``prompt``); without a model, and where a call fails, they come from ``ingestion.locations``.
"""
