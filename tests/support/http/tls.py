"""The TLS context of clients of servers without TLS."""

import ssl

NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""One for all clients: each would read the system's certificates, which takes 25 ms of CPU time."""
