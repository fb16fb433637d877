"""Buffered form of a streamed response, for a front door without streaming."""

import base64
import json
from typing import Any

from infra.emulator.lambda_service.proxy_responses import DELIMITER


def as_proxy_response(stream: bytes) -> bytes:
    """Convert a streamed response into a buffered one.

    LocalStack's API Gateway does not support streams.

    Args:
        stream: Status and headers as JSON, eight NULs, body.
    """
    prelude, _, body = stream.partition(DELIMITER)
    response: dict[str, Any] = json.loads(prelude)
    if cookies := response.pop("cookies", None):
        repeated = response.setdefault("multiValueHeaders", {})
        repeated["set-cookie"] = cookies
    try:
        response |= {"body": body.decode(), "isBase64Encoded": False}
    except UnicodeDecodeError:
        response |= {"body": base64.b64encode(body).decode(), "isBase64Encoded": True}
    return json.dumps(response).encode()
