"""Buffered form of a streamed response, for a front door without streaming.

The format: "Lambda proxy integration format for response streaming",
https://docs.aws.amazon.com/apigateway/latest/developerguide/response-transfer-mode-lambda.html
"""

import base64
import json
from typing import Any

STREAMED = "application/vnd.awslambda.http-integration-response"
"""Content type of a response that begins with its status and headers."""

_DELIMITER = b"\0" * 8


def as_proxy_response(stream: bytes) -> bytes:
    """Convert a streamed response into a buffered one.

    LocalStack's API Gateway does not support streams.

    Args:
        stream: Status and headers as JSON, eight NULs, body.
    """
    prelude, _, body = stream.partition(_DELIMITER)
    response: dict[str, Any] = json.loads(prelude)
    if cookies := response.pop("cookies", None):
        repeated = response.setdefault("multiValueHeaders", {})
        repeated["set-cookie"] = cookies
    try:
        response |= {"body": body.decode(), "isBase64Encoded": False}
    except UnicodeDecodeError:
        response |= {"body": base64.b64encode(body).decode(), "isBase64Encoded": True}
    return json.dumps(response).encode()
