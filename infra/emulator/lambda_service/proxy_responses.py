"""Responses of front doors from a function's answer.

Buffered: a JSON object with statusCode, headers and body. Streamed: that object without the body as a
prelude, eight NUL bytes, then the body as it comes:
https://docs.aws.amazon.com/apigateway/latest/developerguide/response-transfer-mode-lambda.html
"""

import base64
import binascii
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from infra.emulator.lambda_service.invocation import Invocation

DELIMITER = b"\0" * 8
STREAM_CONTENT_TYPE = "application/vnd.awslambda.http-integration-response"
MAX_PRELUDE_BYTES = 16 * 1024
"""Limit of API Gateway for the position of the delimiter."""


class MalformedResponseError(Exception):
    """The function's answer is malformed."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Status, headers in order, and the body or its beginning."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""


def read_answer(answer: Any) -> HttpAnswer:
    """Read status, headers and body of a proxy integration's JSON object, or of a prelude.

    Raises:
        MalformedResponseError: The object is malformed.
    """
    if not isinstance(answer, dict):
        raise MalformedResponseError("The answer is not an object.")
    status = answer.get("statusCode")
    if isinstance(status, str) and status.isdecimal():
        status = int(status)
    if not isinstance(status, int) or isinstance(status, bool) or not 100 <= status <= 599:
        raise MalformedResponseError("statusCode is not a status.")
    headers = [*_headers(answer), *(("set-cookie", str(cookie)) for cookie in answer.get("cookies") or [])]
    return HttpAnswer(status, tuple(headers), _body(answer))


def _headers(answer: dict[str, Any]) -> list[tuple[str, str]]:
    single, multiple = answer.get("headers") or {}, answer.get("multiValueHeaders") or {}
    if not isinstance(single, dict) or not isinstance(multiple, dict):
        raise MalformedResponseError("headers is not an object.")
    pairs: list[tuple[str, str]] = []
    for name, values in multiple.items():
        if not isinstance(values, list):
            raise MalformedResponseError("A value of multiValueHeaders is not a list.")
        pairs += [(name, _scalar(value)) for value in values]
    several = {name.lower() for name in multiple}
    pairs += [(name, _scalar(value)) for name, value in single.items() if name.lower() not in several]
    return pairs


def _scalar(value: Any) -> str:
    if isinstance(value, dict | list) or value is None:
        raise MalformedResponseError("A header's value is not a text.")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if "\r" in text or "\n" in text:
        raise MalformedResponseError("A header's value has a line end.")
    return text


def _body(answer: dict[str, Any]) -> bytes:
    body = answer.get("body")
    if body is None:
        return b""
    if not isinstance(body, str):
        raise MalformedResponseError("body is not a text.")
    if not answer.get("isBase64Encoded"):
        return body.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as exc:
        raise MalformedResponseError("body is not Base64.") from exc


async def read_prelude(invocation: Invocation, pieces: AsyncIterator[bytes]) -> HttpAnswer:
    """Read status and headers of a streamed answer, and the bytes after the delimiter in the same piece.

    Args:
        invocation: Invocation of the answer.
        pieces: Pieces of its body; positioned after the prelude on return.

    Raises:
        MalformedResponseError: The answer ended, failed or exceeded 16 KB before the delimiter.
    """
    begun = b""
    async for piece in pieces:
        begun += piece
        head, delimiter, rest = begun.partition(DELIMITER)
        if len(head) > MAX_PRELUDE_BYTES:
            break
        if delimiter:
            try:
                answer = read_answer(json.loads(head))
            except ValueError as exc:
                raise MalformedResponseError("The prelude is not JSON.") from exc
            return HttpAnswer(answer.status, answer.headers, rest)
    raise MalformedResponseError(f"Request {invocation.request_id} has no prelude.")
