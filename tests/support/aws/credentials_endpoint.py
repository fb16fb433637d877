"""Credentials endpoint of a Lambda function with SnapStart: every request returns new credentials.

https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html
"""

import json
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.support.aws.iam_token import AwsKeys


class CredentialsEndpoint:
    """Listens on 127.0.0.1 while it is an entered context manager."""

    def __init__(self) -> None:
        self.keys: dict[str, AwsKeys] = {}
        """Credentials issued so far, by access key: AKIA0, AKIA1, ..."""
        given = self.keys

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = f"AKIA{len(given)}"
                given[name] = AwsKeys(f"secret of {name}", f"session of {name}")
                until = datetime.now(UTC) + timedelta(hours=6)
                answer = {
                    "AccessKeyId": name,
                    "SecretAccessKey": given[name].secret_key,
                    "Token": given[name].session_token,
                    "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
                }
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that point a process here; an empty value counts as unset."""
        return {
            "AWS_ACCESS_KEY_ID": "",
            "AWS_SECRET_ACCESS_KEY": "",
            "AWS_SESSION_TOKEN": "",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{self._server.server_port}/",
        }
