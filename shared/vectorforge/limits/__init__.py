"""Limits of a tenant: requests, tokens, cost and streams, counted exactly in PostgreSQL."""
