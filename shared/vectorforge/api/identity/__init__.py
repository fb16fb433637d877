"""Authentication and scopes: API keys, access tokens and AWS front doors."""
