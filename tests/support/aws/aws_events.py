"""Encode event streams as AWS's SDKs decode them.

Format: https://smithy.io/2.0/aws/amazon-eventstream.html. All numbers are big-endian.
"""

import json
import struct
from binascii import crc32
from collections.abc import Mapping
from typing import Any

_STRING = 7
"""Type of a header's value."""


def aws_event(name: str, payload: Mapping[str, Any]) -> bytes:
    """A message of type "event" with a JSON payload."""
    headers = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    return _message(headers, json.dumps(payload).encode())


def aws_exception(name: str, message: str) -> bytes:
    """A message that ends a stream with an error of the service's model, e.g. "throttlingException"."""
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    return _message(headers, json.dumps({"message": message}).encode())


def _message(headers: Mapping[str, str], payload: bytes) -> bytes:
    encoded = b"".join(_header(name, value) for name, value in headers.items())
    prelude = struct.pack("!II", 16 + len(encoded) + len(payload), len(encoded))
    message = prelude + struct.pack("!I", crc32(prelude)) + encoded + payload
    return message + struct.pack("!I", crc32(message))


def _header(name: str, value: str) -> bytes:
    return struct.pack(f"!B{len(name)}sBH", len(name), name.encode(), _STRING, len(value)) + value.encode()
