"""ASGI middleware, outermost first."""
