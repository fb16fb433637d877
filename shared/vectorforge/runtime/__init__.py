"""A Lambda runtime for ASGI apps that streams."""
