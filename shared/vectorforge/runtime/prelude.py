"""The metadata before a streamed HTTP response: status, headers and cookies as JSON, then eight NUL bytes.

The keys and the 16 KB: "Lambda proxy integration format for response streaming",
https://docs.aws.amazon.com/apigateway/latest/developerguide/response-transfer-mode-lambda.html
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from vectorforge.runtime.invocation import ProtocolError

CONTENT_TYPE = "application/vnd.awslambda.http-integration-response"
DELIMITER = b"\0" * 8
MAX_PRELUDE_BYTES = 16 * 1024
"""API Gateway looks for the delimiter in the first 16 KB."""

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2
_FORBIDDEN_IN_VALUE = re.compile(rb"[\0\r\n]")  # RFC 9110, 5.5
_HOP_BY_HOP = {
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}


def prelude(status: object, headers: Iterable[tuple[bytes, bytes]], *, multi_value_headers: bool) -> bytes:
    """The bytes that go before the body.

    Args:
        status: HTTP status, 100 to 599.
        headers: ASGI header pairs. Hop-by-hop ones are left out: the front door has its own connection.
        multi_value_headers: Put repeated headers under ``multiValueHeaders`` (payload 1.0) instead of joining
            their values with commas.

    Raises:
        ProtocolError: A header that would split the response, a status that is none, or more than 16 KB.
    """
    if not isinstance(status, int) or not 100 <= status <= 599:
        raise ProtocolError("The app's response status is not a number from 100 to 599.")
    values, cookies = _collect(headers)
    metadata: dict[str, Any] = {"statusCode": int(status)}
    if multi_value_headers:
        metadata["headers"] = {name: value[0] for name, value in values.items() if len(value) == 1}
        repeated = {name: value for name, value in values.items() if len(value) > 1}
        if repeated:
            metadata["multiValueHeaders"] = repeated
    else:
        metadata["headers"] = {name: ", ".join(value) for name, value in values.items()}
    if cookies:
        metadata["cookies"] = cookies
    # JSON escapes every control character, so that the delimiter cannot appear before its place.
    encoded = json.dumps(metadata, separators=(",", ":")).encode("ascii") + DELIMITER
    if len(encoded) > MAX_PRELUDE_BYTES:
        raise ProtocolError(f"The response's headers take more than {MAX_PRELUDE_BYTES} bytes.")
    return encoded


def _collect(headers: Iterable[tuple[bytes, bytes]]) -> tuple[dict[str, list[str]], list[str]]:
    """Header values by lower-case name, in the app's order, and the cookies apart."""
    values: dict[str, list[str]] = {}
    cookies: list[str] = []
    for raw_name, raw_value in headers:
        name, value = bytes(raw_name), bytes(raw_value)
        if not _TOKEN.fullmatch(name):
            raise ProtocolError("The name of a response header has characters that HTTP does not allow.")
        if _FORBIDDEN_IN_VALUE.search(value):
            raise ProtocolError(f"The response header {name.decode('ascii')!r} has a line break or a NUL.")
        key = name.decode("ascii").lower()
        if key == "set-cookie":
            cookies.append(_text(value))
        elif key not in _HOP_BY_HOP:
            values.setdefault(key, []).append(_text(value))
    return values, cookies


def _text(value: bytes) -> str:
    """As Mangum reads it, UTF-8; what is none is ISO 8859-1 (RFC 9110, 5.5)."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
