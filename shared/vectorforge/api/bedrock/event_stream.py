"""Messages of AWS event streams, which AWS's SDKs decode (https://smithy.io/2.0/aws/amazon-eventstream.html).

A message is a prelude (its length and that of its headers) with a CRC, headers, a JSON payload, and a CRC of
all before. All numbers are big-endian.
"""

import struct
import zlib
from functools import lru_cache

MEDIA_TYPE = "application/vnd.amazon.eventstream"

_STRING = 7
"""Type of a header's value."""
_AROUND_BYTES = 16
"""Bytes of the prelude and both CRCs."""


def event_message(name: str, payload: str) -> bytes:
    """Encode an event.

    Args:
        name: Member of the service model's stream, such as "output".
        payload: JSON.
    """
    return _message(_headers("event", name), payload.encode())


def exception_message(name: str, payload: str) -> bytes:
    """Encode an error that ends the stream, with arguments as of ``event_message``."""
    return _message(_headers("exception", name), payload.encode())


@lru_cache(maxsize=32)
def _headers(kind: str, name: str) -> bytes:
    values = {f":{kind}-type": name, ":content-type": "application/json", ":message-type": kind}
    return b"".join(_header(key.encode(), value.encode()) for key, value in values.items())


def _header(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + struct.pack("!BH", _STRING, len(value)) + value


def _message(headers: bytes, payload: bytes) -> bytes:
    prelude = struct.pack("!II", _AROUND_BYTES + len(headers) + len(payload), len(headers))
    message = b"".join([prelude, struct.pack("!I", zlib.crc32(prelude)), headers, payload])
    return message + struct.pack("!I", zlib.crc32(message))
