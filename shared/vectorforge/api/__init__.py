"""HTTP API: request state, middleware, identity, streaming, and a folder of routers for each API surface."""
