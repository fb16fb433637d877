"""Profiles: typed documents with fields of their own."""
