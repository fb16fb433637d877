"""The front doors of the query function: a REST API with its keys and firewall, and a function URL."""
