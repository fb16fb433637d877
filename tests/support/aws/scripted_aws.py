"""Fake AWS for code that looks at an account: moto, and in front of it answers that moto does not have.

Answers and failures go over the wire as each service writes them
(https://smithy.io/2.0/aws/protocols/index.html), so that the SDK reads them like AWS's.
"""

import http.client
import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.support.aws.fake_aws import FakeAws, aws_environment

EVERY = ("*", "*")
"""Every operation of every service."""
_ACCOUNT_SETTINGS = "/2016-08-19/account-settings"

_ACCOUNT_ATTRIBUTES = """\
<DescribeAccountAttributesResponse xmlns="http://rds.amazonaws.com/doc/2014-10-31/"><DescribeAccountAttributesResult>
<AccountQuotas><AccountQuota><AccountQuotaName>DBInstances</AccountQuotaName><Used>{used}</Used><Max>{limit}</Max>
</AccountQuota></AccountQuotas></DescribeAccountAttributesResult></DescribeAccountAttributesResponse>"""
_OFFERS = """\
<DescribeOrderableDBInstanceOptionsResponse xmlns="http://rds.amazonaws.com/doc/2014-10-31/">
<DescribeOrderableDBInstanceOptionsResult><OrderableDBInstanceOptions>{offers}</OrderableDBInstanceOptions>
</DescribeOrderableDBInstanceOptionsResult></DescribeOrderableDBInstanceOptionsResponse>"""
_OFFER = """\
<OrderableDBInstanceOption><Engine>postgres</Engine><EngineVersion>{version}</EngineVersion>
<MultiAZCapable>{multi_az}</MultiAZCapable>
</OrderableDBInstanceOption>"""
_QUERY_ERROR = """\
<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>
<RequestId>0</RequestId></ErrorResponse>"""
_EC2_ERROR = """\
<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>
<RequestID>0</RequestID></Response>"""

CANARY = "AKIASECRETCANARY"
"""Part of every failure's text: AWS quotes signed data, which must not be shown."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A scripted response of a service."""

    status: int
    content: str
    kind: str = "application/json"
    delay_s: float = 0.0


class ScriptedAws(FakeAws):
    """moto behind a proxy; use it as a context manager. ``client`` bypasses the proxy."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []
        """Service and operation of each call through the proxy."""
        self._answers: dict[tuple[str, str], Answer] = {}
        self._proxy = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._proxy.serve_forever, kwargs={"poll_interval": 0.02})
        self.recover()

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that point boto3 to the proxy."""
        return aws_environment(f"http://127.0.0.1:{self._proxy.server_port}")

    def __enter__(self) -> Self:
        super().__enter__()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._proxy.shutdown()
        self._thread.join()
        self._proxy.server_close()
        super().__exit__(*exception)

    def recover(self) -> None:
        """Restore a typical account: default answers where moto has none, no failures or calls."""
        self.calls.clear()
        self._answers.clear()
        self.allow_concurrency(1000, 1000)
        self.allow_quota("ec2", "L-0263D0A3", 5)
        self.allow_database_instances(used=0, limit=40)
        self.offer_databases(multi_az=True)

    def allow_concurrency(self, limit: int, unreserved: int) -> None:
        """Set the limits of Lambda's concurrent executions."""
        limits = {"ConcurrentExecutions": limit, "UnreservedConcurrentExecutions": unreserved}
        self.answer("lambda", "GetAccountSettings", json.dumps({"AccountLimit": limits}))

    def allow_quota(self, service: str, code: str, limit: int) -> None:
        """Set one quota of Service Quotas, the only one that is not answered by moto."""
        quota = {"ServiceCode": service, "QuotaCode": code, "Value": float(limit)}
        self.answer("servicequotas", f"GetServiceQuota {code}", json.dumps({"Quota": quota}))

    def allow_database_instances(self, *, used: int, limit: int) -> None:
        """Set the quota of RDS instances."""
        content = _ACCOUNT_ATTRIBUTES.format(used=used, limit=limit)
        self.answer("rds", "DescribeAccountAttributes", content, kind="text/xml")

    def offer_databases(
        self, *, multi_az: bool, versions: Sequence[str] = ("16.13", "17.9", "17.10", "18.2")
    ) -> None:
        """Offer the requested instance class.

        Args:
            multi_az: Whether it is available in two zones.
            versions: Versions of PostgreSQL for it; without any, it is not offered.
        """
        offers = (_OFFER.format(version=version, multi_az=str(multi_az).lower()) for version in versions)
        content = _OFFERS.format(offers="".join(offers))
        self.answer("rds", "DescribeOrderableDBInstanceOptions", content, kind="text/xml")

    def answer(
        self, service: str, operation: str, content: str, *, kind: str = "application/json", status: int = 200
    ) -> None:
        """Answer an operation with this from now on."""
        self._answers[service, operation] = Answer(status, content, kind)

    def fail(self, service: str, operation: str, code: str, *, status: int = 400) -> None:
        """Fail an operation (``EVERY``: all of them) from now on.

        Args:
            service: Name in the signature, e.g. "ec2".
            operation: E.g. "DescribeVpcs".
            code: E.g. "UnauthorizedOperation".
            status: HTTP status.
        """
        self._answers[service, operation] = Answer(status, code, "error")

    def delay(self, seconds: float) -> None:
        """Close every connection after a delay, without a response."""
        self._answers[EVERY] = Answer(0, "", delay_s=seconds)

    def _scripted(self, service: str, operation: str, body: bytes) -> Answer | None:
        if EVERY in self._answers:
            return self._answers[EVERY]
        if service == "servicequotas":
            operation = f"{operation} {json.loads(body)['QuotaCode']}"
        return self._answers.get((service, operation))

    def _respond(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        service, operation = _called(method, path, headers, body)
        self.calls.append((service, operation))
        scripted = self._scripted(service, operation, body)
        if scripted is None:
            return self._forward(method, path, headers, body)
        if scripted.delay_s:
            time.sleep(scripted.delay_s)
            raise ConnectionAbortedError
        if scripted.kind == "error":
            return _failure(service, scripted)
        return scripted.status, [("Content-Type", scripted.kind)], scripted.content.encode()

    def _forward(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=30)
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        aws = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                try:
                    status, headers, content = aws._respond(self.command, self.path, dict(self.headers), body)
                except ConnectionAbortedError:
                    self.close_connection = True
                    return
                self.send_response(status)
                length = str(len(content))
                for name, value in headers:
                    if self.command == "HEAD" and name.lower() == "content-length":
                        length = value  # that of the body which GET returns
                    if name.lower() not in (
                        "content-length",
                        "connection",
                        "server",
                        "date",
                        "transfer-encoding",
                    ):
                        self.send_header(name, value)
                self.send_header("Content-Length", length)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _do  # noqa: N815 - http.server's names

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        return Handler


def _called(method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[str, str]:
    """Return the service and operation of a request."""
    scope = re.search(r"Credential=[^/]+/\d+/[^/]+/([^/]+)/", headers.get("Authorization", ""))
    service = scope[1] if scope else ""
    if "X-Amz-Target" in headers:
        return service, headers["X-Amz-Target"].rsplit(".", 1)[-1]
    if path.rstrip("/") == _ACCOUNT_SETTINGS:
        return service, "GetAccountSettings"
    action = parse_qs(body.decode(errors="replace")).get("Action") if method == "POST" else None
    return service, action[0] if action else f"{method} {path}"


def _failure(service: str, scripted: Answer) -> tuple[int, list[tuple[str, str]], bytes]:
    code, message = scripted.content, f"The canonical string for {CANARY} should have been ..."
    if service in ("sts", "rds", "cloudformation", "ec2"):
        template = _EC2_ERROR if service == "ec2" else _QUERY_ERROR
        return (
            scripted.status,
            [("Content-Type", "text/xml")],
            template.format(code=code, message=message).encode(),
        )
    content: dict[str, Any] = {"__type": code, "message": message}
    kind = [("Content-Type", "application/x-amz-json-1.1"), ("x-amzn-ErrorType", code)]
    return scripted.status, kind, json.dumps(content).encode()
