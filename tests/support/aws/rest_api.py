"""API Gateway's REST API as a front door of a function.

Payload 1.0: https://docs.aws.amazon.com/apigateway/latest/developerguide/set-up-lambda-proxy-integrations.html
"""

import base64
from typing import Any
from urllib.parse import parse_qsl, unquote

from infra.emulator.lambda_service.front_doors import FrontDoor, ResponseMode
from infra.emulator.lambda_service.function_configuration import ACCOUNT_ID, Function
from infra.emulator.lambda_service.proxy_events import ProxyRequest
from infra.emulator.lambda_service.proxy_responses import HttpAnswer

_JSON = (("content-type", "application/json"),)


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
        """Return payload 1.0."""
        return payload_1(request, stage=self.stage, api_id="local")


def path_in(stage: str, request: ProxyRequest) -> str:
    """Return the path without the stage, which is optional here."""
    prefix = f"/{stage}"
    is_staged = request.path == prefix or request.path.startswith(f"{prefix}/")
    return request.path[len(prefix) :] or "/" if is_staged else request.path


def payload_1(request: ProxyRequest, *, stage: str, api_id: str) -> dict[str, Any]:
    """Return the event of a REST API with a greedy proxy resource."""
    names = dict.fromkeys(name.lower() for name, _ in request.headers)
    spelled = {name.lower(): name for name, _ in reversed(request.headers)}
    values = {
        spelled[low]: [value for name, value in request.headers if name.lower() == low] for low in names
    }
    queries: dict[str, list[str]] = {}
    for name, value in parse_qsl(request.query, keep_blank_values=True):
        queries.setdefault(name, []).append(value)
    body, is_base64 = request.encoded_body()
    path = path_in(stage, request)
    is_root = path == "/"
    resource = "/" if is_root else "/{proxy+}"
    return {
        "resource": resource,
        "path": path,
        "httpMethod": request.head.method,
        "headers": {name: all_values[-1] for name, all_values in values.items()},
        "multiValueHeaders": values,
        "queryStringParameters": {name: all_values[-1] for name, all_values in queries.items()} or None,
        "multiValueQueryStringParameters": queries or None,
        "pathParameters": None if is_root else {"proxy": unquote(path[1:])},
        "stageVariables": None,
        "requestContext": _context_1(request, stage=stage, api_id=api_id, resource=resource),
        "body": body,
        "isBase64Encoded": is_base64,
    }


def _context_1(request: ProxyRequest, *, stage: str, api_id: str, resource: str) -> dict[str, Any]:
    unknown = (
        "cognitoIdentityPoolId",
        "accountId",
        "cognitoIdentityId",
        "caller",
        "principalOrgId",
        "accessKey",
        "cognitoAuthenticationType",
        "cognitoAuthenticationProvider",
        "userArn",
        "user",
    )
    identity = dict.fromkeys(unknown) | {
        "sourceIp": request.source_ip,
        "userAgent": request.head.get("user-agent") or None,
    }
    return {
        "resourceId": "proxy1",
        "resourcePath": resource,
        "httpMethod": request.head.method,
        "extendedRequestId": base64.b64encode(request.request_id.encode()[:11]).decode(),
        "requestTime": request.time,
        "path": f"/{stage}{path_in(stage, request)}",
        "accountId": ACCOUNT_ID,
        "protocol": request.head.version,
        "stage": stage,
        "domainPrefix": request.host.partition(".")[0].partition(":")[0],
        "requestTimeEpoch": request.epoch_ms,
        "requestId": request.request_id,
        "identity": identity,
        "domainName": request.host,
        "deploymentId": "local1",
        "apiId": api_id,
    }
