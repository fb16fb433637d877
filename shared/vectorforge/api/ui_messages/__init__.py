"""Vercel's AI SDK over our own API: its messages, and version 1 of its UI message stream."""
