"""Events of HTTP requests at front doors.

Payload 2.0 (HTTP API, function URL):
https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html and
https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html.
"""

import base64
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from infra.emulator.lambda_service.function_configuration import ACCOUNT_ID
from infra.emulator.lambda_service.http_server import RequestHead

_TEXT_TYPES = {"application/json", "application/javascript", "application/xml"}


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """A request at a front door."""

    head: RequestHead
    body: bytes
    source_ip: str
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    """Request id of the front door, which differs from the invocation's."""
    received: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def path(self) -> str:
        """Path as sent, percent-encoded, without the query."""
        return urlsplit(self.head.target).path or "/"

    @property
    def query(self) -> str:
        """Query as sent, without the question mark."""
        return urlsplit(self.head.target).query

    @property
    def host(self) -> str:
        """Host header; AWS's domain name."""
        return self.head.get("host", "localhost")

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Headers of the client, and those that AWS adds."""
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

    @property
    def time(self) -> str:
        """Time of the request in AWS's format."""
        return self.received.strftime("%d/%b/%Y:%H:%M:%S +0000")

    @property
    def epoch_ms(self) -> int:
        """Time of the request in milliseconds."""
        return int(self.received.timestamp() * 1000)

    def encoded_body(self) -> tuple[str | None, bool]:
        """Return the body of the event, and whether it is Base64."""
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


def payload_2(request: ProxyRequest) -> dict[str, Any]:
    """Return the common event of function URLs and HTTP APIs."""
    pairs = [(name.lower(), value) for name, value in request.headers]
    names = dict.fromkeys(name for name, _ in pairs if name != "cookie")
    cookies = [part.strip() for name, value in pairs if name == "cookie" for part in value.split(";")]
    queries: dict[str, list[str]] = {}
    for name, value in parse_qsl(request.query, keep_blank_values=True):
        queries.setdefault(name, []).append(value)
    body, is_base64 = request.encoded_body()
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": request.path,
        "rawQueryString": request.query,
        "headers": {name: ",".join(value for key, value in pairs if key == name) for name in names},
        "requestContext": {
            "accountId": ACCOUNT_ID,
            "apiId": "local",
            "domainName": request.host,
            "domainPrefix": request.host.partition(".")[0].partition(":")[0],
            "http": {
                "method": request.head.method,
                "path": request.path,
                "protocol": request.head.version,
                "sourceIp": request.source_ip,
                "userAgent": request.head.get("user-agent"),
            },
            "requestId": request.request_id,
            "routeKey": "$default",
            "stage": "$default",
            "time": request.time,
            "timeEpoch": request.epoch_ms,
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
