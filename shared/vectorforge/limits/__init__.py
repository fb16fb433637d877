"""What a tenant may use: requests, tokens, cost and streams, counted exactly in PostgreSQL."""
