"""Metadata filters: language, parser and SQL."""
