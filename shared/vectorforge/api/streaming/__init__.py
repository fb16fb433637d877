"""Streamed answers: events, buffers, resumption and idempotent replay."""
