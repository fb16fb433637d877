"""Fake AWS behind a proxy that counts the calls and can fail them."""

import http.client
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

from tests.support.aws.fake_aws import REGION, FakeAws, aws_environment

_TARGETS = {"secretsmanager": "secretsmanager", "ssm": "AmazonSSM"}


@dataclass(frozen=True, slots=True)
class AwsFailure:
    """An error that a service returns instead of doing its work."""

    status: int
    code: str
    """E.g. "AccessDeniedException"."""
    message: str = "scripted failure"


class FaultyAws(FakeAws):
    """Secrets Manager and SSM behind the proxy to which ``environment`` points boto3.

    Requests of ``call`` and ``client`` bypass the proxy: they are not counted and do not fail.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        """Names of the operations requested through the proxy, e.g. "GetSecretValue", in order."""
        self.failure: AwsFailure | None = None
        """While set, every call through the proxy fails with it."""
        self._proxy = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._proxy.serve_forever, kwargs={"poll_interval": 0.02})

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
        """Clear the failure and the recorded calls."""
        self.calls.clear()
        self.failure = None

    def call(self, service: str, operation: str, **body: Any) -> dict[str, Any]:
        """Call a service past the proxy and without the SDK, whose logs would show the body.

        Args:
            service: "secretsmanager" or "ssm".
            operation: E.g. "CreateSecret".
            **body: Its parameters.
        """
        scope = f"Credential=testing/20260101/{REGION}/{service}/aws4_request"
        headers = {
            "Authorization": f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0",
            "Content-Type": "application/x-amz-json-1.1",
            "X-Amz-Target": f"{_TARGETS[service]}.{operation}",
        }
        status, _, answer = self._forward(headers, json.dumps(body).encode())
        assert status == 200, answer
        return dict(json.loads(answer))

    def put_secret(self, name: str, fields: Mapping[str, Any] | str) -> None:
        """Create a secret, or add a new version."""
        text = fields if isinstance(fields, str) else json.dumps(fields)
        names = [secret["Name"] for secret in self.call("secretsmanager", "ListSecrets")["SecretList"]]
        if name in names:
            self.call("secretsmanager", "PutSecretValue", SecretId=name, SecretString=text)
        else:
            self.call("secretsmanager", "CreateSecret", Name=name, SecretString=text)

    def put_parameter(self, name: str, value: str) -> None:
        """Create a SecureString, or overwrite it."""
        self.call("ssm", "PutParameter", Name=name, Value=value, Type="SecureString", Overwrite=True)

    def _forward(self, headers: Mapping[str, str], body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=10)
        try:
            connection.request("POST", "/", body, dict(headers))
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()

    def _answer(self, headers: Mapping[str, str], body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        # The SDK repeats a call that a busy machine answers late: it counts once.
        if self.failure is not None or "attempt=1" in headers.get("amz-sdk-request", "attempt=1"):
            self.calls.append(headers.get("X-Amz-Target", "").rsplit(".", 1)[-1])
        if self.failure is None:
            return self._forward(headers, body)
        content = {"__type": self.failure.code, "Message": self.failure.message}
        kind = [("Content-Type", "application/x-amz-json-1.1")]
        return self.failure.status, kind, json.dumps(content).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        aws = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, headers, content = aws._answer(dict(self.headers), body)
                self.send_response(status)
                for name, value in headers:
                    if name.lower() not in ("content-length", "connection", "server", "date"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        return Handler
