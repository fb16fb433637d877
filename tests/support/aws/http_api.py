"""API Gateway's HTTP API as a front door of a function; deployments use REST APIs and function URLs."""

from typing import Any

from infra.emulator.lambda_service.front_doors import FrontDoor, infer_answer
from infra.emulator.lambda_service.function_configuration import Function
from infra.emulator.lambda_service.proxy_events import ProxyRequest, payload_2
from infra.emulator.lambda_service.proxy_responses import HttpAnswer
from tests.support.aws.rest_api import path_in

_JSON = (("content-type", "application/json"),)


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
        event = payload_2(request)
        context = event["requestContext"]
        if self.stage != "$default":
            path = f"/{self.stage}{path_in(self.stage, request)}"
            event["rawPath"] = context["http"]["path"] = path
            context["stage"] = self.stage
        return event

    def read_json(self, answer: Any) -> HttpAnswer:
        """Treat an answer without a status as a body."""
        return infer_answer(answer)
