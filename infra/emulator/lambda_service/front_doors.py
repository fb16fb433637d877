"""AWS's three HTTP front doors of a function."""

import json
from collections.abc import AsyncIterator
from typing import Any

from infra.emulator.lambda_service.front_door import FrontDoor, ResponseMode
from infra.emulator.lambda_service.function_configuration import Function
from infra.emulator.lambda_service.invocation import Invocation
from infra.emulator.lambda_service.proxy_events import ProxyRequest, payload_1, payload_2
from infra.emulator.lambda_service.proxy_responses import (
    STREAM_CONTENT_TYPE,
    HttpAnswer,
    MalformedResponseError,
    read_answer,
)

_JSON = (("content-type", "application/json"),)
_OPAQUE = (("content-type", "application/octet-stream"),)


class FunctionUrl(FrontDoor):
    """A function URL: payload 2.0, buffered or streamed.

    An answer that is not in the proxy format is the body of a 200, a prelude sent to a buffered URL, too:
    https://github.com/awslabs/aws-lambda-web-adapter/issues/476
    """

    request_limit = 6 * 1024 * 1024
    failed = HttpAnswer(502, (("content-type", "text/plain"),), b"Internal Server Error")
    throttled = HttpAnswer(429, _JSON, b'{"Message":"Rate Exceeded."}')
    timed_out = failed

    def __init__(self, function: Function, *, response_mode: ResponseMode = "stream", port: int = 0) -> None:
        super().__init__(function, response_mode=response_mode, port=port)

    def event(self, request: ProxyRequest) -> dict[str, Any]:
        """Payload 2.0; ``authentication`` and ``authorizer`` are null without IAM."""
        event = payload_2(request, api_id="local")
        event["requestContext"] |= {"authentication": None, "authorizer": None}
        return event

    def not_json(self, invocation: Invocation) -> HttpAnswer:
        """The bytes as they are."""
        return HttpAnswer(200, _OPAQUE, invocation.body)

    def read_json(self, answer: Any) -> HttpAnswer:
        """Without a status it is a body itself."""
        return infer_answer(answer)

    async def _begin(self, invocation: Invocation, pieces: AsyncIterator[bytes]) -> HttpAnswer:
        await invocation.opened.wait()
        if invocation.error is not None and not invocation.chunks:  # what came before a cut is passed on
            raise MalformedResponseError(invocation.error.error_type)
        if invocation.content_type != STREAM_CONTENT_TYPE:
            return HttpAnswer(200, _OPAQUE)
        return await super()._begin(invocation, pieces)


class HttpApi(FrontDoor):
    """An HTTP API with a ``$default`` route: payload 2.0, buffered only, within 30 seconds.

    AWS answers 500 for a failed function and 503 for a throttled one here.
    """

    request_limit = 10 * 1024 * 1024
    failed = HttpAnswer(500, _JSON, b'{"message":"Internal Server Error"}')
    throttled = HttpAnswer(503, _JSON, b'{"message":"Service Unavailable"}')
    timed_out = throttled

    def __init__(
        self, function: Function, *, stage: str = "$default", port: int = 0, timeout_s: float = 30.0
    ) -> None:
        super().__init__(function, response_mode="buffered", port=port, timeout_s=timeout_s)
        self.stage = stage

    def event(self, request: ProxyRequest) -> dict[str, Any]:
        """Payload 2.0."""
        return payload_2(request, api_id="local", stage=self.stage)

    def read_json(self, answer: Any) -> HttpAnswer:
        """Without a status it is a body itself."""
        return infer_answer(answer)


class RestApi(FrontDoor):
    """A REST API with a greedy proxy resource: payload 1.0, buffered (29 s) or streamed (15 minutes).

    AWS answers 500 when Lambda refuses an invocation (throttling) and 502 when the function fails.
    """

    request_limit = 10 * 1024 * 1024
    failed = HttpAnswer(502, _JSON, b'{"message": "Internal server error"}')
    throttled = HttpAnswer(500, _JSON, b'{"message": "Internal server error"}')
    timed_out = HttpAnswer(504, _JSON, b'{"message": "Endpoint request timed out"}')

    def __init__(
        self,
        function: Function,
        *,
        response_mode: ResponseMode = "stream",
        stage: str = "prod",
        port: int = 0,
        timeout_s: float | None = None,
    ) -> None:
        patience_s = timeout_s if timeout_s is not None else 900.0 if response_mode == "stream" else 29.0
        super().__init__(function, response_mode=response_mode, port=port, timeout_s=patience_s)
        self.stage = stage

    def event(self, request: ProxyRequest) -> dict[str, Any]:
        """Payload 1.0."""
        return payload_1(request, stage=self.stage, api_id="local")


def infer_answer(answer: Any) -> HttpAnswer:
    """Payload 2.0's rule: an object with statusCode is an answer, anything else is a JSON body with 200."""
    if isinstance(answer, dict) and "statusCode" in answer:
        return read_answer(answer)
    body = answer if isinstance(answer, str) else json.dumps(answer)
    return HttpAnswer(200, _JSON, body.encode())
