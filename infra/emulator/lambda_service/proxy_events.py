"""HTTP requests as the events that front doors make of them.

Payload 1.0 (REST API):
https://docs.aws.amazon.com/apigateway/latest/developerguide/set-up-lambda-proxy-integrations.html;
payload 2.0 (HTTP API, function URL):
https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html and
https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html.
"""

import base64
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from infra.emulator.lambda_service.function_configuration import ACCOUNT_ID
from infra.emulator.lambda_service.http_messages import RequestHead

_TEXT_TYPES = {"application/json", "application/javascript", "application/xml"}


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """A request at a front door."""

    head: RequestHead
    body: bytes
    source_ip: str
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    """Of the front door; the invocation has one of its own."""
    received: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def path(self) -> str:
        """As sent, percent-encoded, without the query."""
        return urlsplit(self.head.target).path or "/"

    def path_in(self, stage: str) -> str:
        """The path without the stage, with which AWS's own URLs begin and the ones here may."""
        prefix = f"/{stage}"
        is_staged = self.path == prefix or self.path.startswith(f"{prefix}/")
        return self.path[len(prefix) :] or "/" if is_staged else self.path

    @property
    def query(self) -> str:
        """As sent, without the question mark."""
        return urlsplit(self.head.target).query

    @property
    def host(self) -> str:
        """Host header; AWS's domain name."""
        return self.head.get("host", "localhost")

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """What the client sent and what AWS adds on the way."""
        host, _, port = self.host.partition(":")
        added = {
            "x-forwarded-for": self.source_ip,
            "x-forwarded-port": port or "80",
            "x-forwarded-proto": "http",
        }
        digits = self.request_id.replace("-", "")
        added["x-amzn-trace-id"] = f"Root=1-{int(self.received.timestamp()):08x}-{digits[:24]}"
        if not self.head.get("host"):
            added["host"] = host
        sent = {name.lower() for name, _ in self.head.headers}
        new = ((name, value) for name, value in added.items() if name not in sent)
        dropped = {"connection", "transfer-encoding", "expect"}
        return (*(pair for pair in self.head.headers if pair[0].lower() not in dropped), *new)

    def encoded_body(self) -> tuple[str | None, bool]:
        """Body of the event and whether it is Base64."""
        if not self.body:
            return None, False
        media_type = self.head.get("content-type").split(";", 1)[0].strip().lower()
        if (
            media_type.startswith("text/")
            or media_type in _TEXT_TYPES
            or media_type.endswith(("+json", "+xml"))
        ):
            try:
                return self.body.decode(), False
            except UnicodeDecodeError:
                pass  # called text, but is not: only Base64 keeps it whole
        return base64.b64encode(self.body).decode("ascii"), True


def payload_1(request: ProxyRequest, *, stage: str, api_id: str) -> dict[str, Any]:
    """Event of a REST API with a greedy proxy resource."""
    names = dict.fromkeys(name.lower() for name, _ in request.headers)
    spelled = {name.lower(): name for name, _ in reversed(request.headers)}
    values = {
        spelled[low]: [value for name, value in request.headers if name.lower() == low] for low in names
    }
    queries: dict[str, list[str]] = {}
    for name, value in parse_qsl(request.query, keep_blank_values=True):
        queries.setdefault(name, []).append(value)
    body, is_base64 = request.encoded_body()
    path = request.path_in(stage)
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
        "requestTime": _time(request),
        "path": f"/{stage}{request.path_in(stage)}",
        "accountId": ACCOUNT_ID,
        "protocol": request.head.version,
        "stage": stage,
        "domainPrefix": request.host.partition(".")[0].partition(":")[0],
        "requestTimeEpoch": _epoch_ms(request),
        "requestId": request.request_id,
        "identity": identity,
        "domainName": request.host,
        "deploymentId": "local1",
        "apiId": api_id,
    }


def payload_2(request: ProxyRequest, *, api_id: str, stage: str = "$default") -> dict[str, Any]:
    """What function URLs and HTTP APIs have in common; the caller adds what only one of them has."""
    pairs = [(name.lower(), value) for name, value in request.headers]
    names = dict.fromkeys(name for name, _ in pairs if name != "cookie")
    cookies = [part.strip() for name, value in pairs if name == "cookie" for part in value.split(";")]
    queries: dict[str, list[str]] = {}
    for name, value in parse_qsl(request.query, keep_blank_values=True):
        queries.setdefault(name, []).append(value)
    body, is_base64 = request.encoded_body()
    path = request.path if stage == "$default" else f"/{stage}{request.path_in(stage)}"
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": request.query,
        "headers": {name: ",".join(value for key, value in pairs if key == name) for name in names},
        "requestContext": {
            "accountId": ACCOUNT_ID,
            "apiId": api_id,
            "domainName": request.host,
            "domainPrefix": request.host.partition(".")[0].partition(":")[0],
            "http": {
                "method": request.head.method,
                "path": path,
                "protocol": request.head.version,
                "sourceIp": request.source_ip,
                "userAgent": request.head.get("user-agent"),
            },
            "requestId": request.request_id,
            "routeKey": "$default",
            "stage": stage,
            "time": _time(request),
            "timeEpoch": _epoch_ms(request),
        },
        "isBase64Encoded": is_base64,
    }
    if cookies:
        event["cookies"] = cookies
    if queries:
        event["queryStringParameters"] = {name: ",".join(values) for name, values in queries.items()}
    if body is not None:
        event["body"] = body
    return event


def _time(request: ProxyRequest) -> str:
    return request.received.strftime("%d/%b/%Y:%H:%M:%S +0000")


def _epoch_ms(request: ProxyRequest) -> int:
    return int(request.received.timestamp() * 1000)
