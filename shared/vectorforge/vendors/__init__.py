"""Connections to model vendors: HTTP client, SDK transports, credentials, retries and error mapping."""
