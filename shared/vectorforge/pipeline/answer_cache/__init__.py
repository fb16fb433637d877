"""Cached answers: key, storage, look-up and replay."""
