"""The migrate function, most often in a separate process, and the stack that waits for its responses."""

import asyncio
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.aws.lambda_context import LambdaContext
from vectorforge.aws.handlers.migrate import MigrateFunction

ROOT = Path(__file__).parents[2]
SIGNED = "?X-Amz-Signature=canary-signature"
DRIVER = """
import json, sys
from functions.migrate.handler import handler
from tests.support.aws.lambda_context import LambdaContext
for line in sys.stdin:
    event, remaining_ms = json.loads(line)
    try:
        answer = handler(event, LambdaContext(remaining_ms=remaining_ms))
    except Exception as exc:
        answer = {"error": type(exc).__name__, "message": str(exc)}
    print("ANSWER " + json.dumps(answer), flush=True)
"""


def event(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ROOT / "events" / f"{name}.json").read_text())
    return loaded


class Stack:
    """CloudFormation's endpoint for responses: a presigned S3 address."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []
        self.content_types: list[str | None] = []
        self.sizes: list[int] = []
        self.refuses = 0
        stack = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if stack.refuses:
                    stack.refuses -= 1
                    self.send_error(503)
                    return
                stack.answers.append(json.loads(body))
                stack.sizes.append(len(body))
                stack.content_types.append(self.headers["Content-Type"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def request(self, name: str) -> dict[str, Any]:
        host, port = self.server.server_address[:2]
        return {
            **event(name),
            "ResponseURL": f"http://{host!s}:{port}/answer{SIGNED}",
        }


@contextmanager
def running(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def url_of(conninfo: str, password: str | None = None, **changes: str) -> str:
    """Return a connection string as a URL for the settings."""
    parts = {**conninfo_to_dict(conninfo), **changes}
    credentials = f"{parts['user']}:{password}" if password else parts["user"]
    port = parts.get("port", 5432)
    return f"postgresql://{credentials}@/{parts['dbname']}?host={parts['host']}&port={port}"


async def invoke(
    environment: dict[str, str], *events: tuple[dict[str, Any], int], library: Path = ROOT / "shared"
) -> tuple[list[dict[str, Any] | None], str]:
    """Invoke one process with these (event, remaining milliseconds); return its responses and output."""
    path = os.pathsep.join([str(library), str(ROOT)])
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-W", "error", "-c", DRIVER),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path, "HOME": os.environ["HOME"], **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate("".join(json.dumps(pair) + "\n" for pair in events).encode())
    assert process.returncode == 0, err.decode()
    answers = [line.removeprefix(b"ANSWER ") for line in out.splitlines() if line.startswith(b"ANSWER ")]
    return [json.loads(answer) for answer in answers], out.decode() + err.decode()


async def fail_in_process(
    environment: dict[str, str], stack: Stack, capfd: pytest.CaptureFixture[str]
) -> tuple[str, str]:
    """Let the creation of a stack fail in this process; return the reason, and all output."""
    stack.answers.clear()
    capfd.readouterr()
    request = stack.request("migrate_cloudformation_create")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        # Raising would make Lambda retry.
        assert await asyncio.to_thread(MigrateFunction(), request, LambdaContext(remaining_ms=30_000)) is None
    [answer] = stack.answers
    assert answer["Status"] == "FAILED"
    printed = capfd.readouterr()
    return answer["Reason"], printed.out + printed.err + str(answer)
