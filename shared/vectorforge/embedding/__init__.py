"""Vectors out: embedding models behind one interface."""
