"""The sink: records that SQS does not accept in time are printed once, whatever ends the wait."""

import asyncio
import hashlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.support.aws.fake_aws import aws_environment
from tests.support.rag.query_logs import make_log, message
from vectorforge.aws.clients import AwsClients
from vectorforge.aws.query_log_queue import MAX_LINE_BYTES, QueryLogQueue
from vectorforge.bootstrap import Application
from vectorforge.config import VectorForgeConfig


@pytest.fixture(params=["direct", "boto3"])
async def queue(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[QueryLogQueue]:
    """Point SQS to a port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        for name, value in aws_environment(f"http://127.0.0.1:{server.getsockname()[1]}").items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
        if request.param == "boto3":  # a setting that only boto3 follows
            monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "false")
        clients = AwsClients(read_timeout_s=1, max_attempts=1)
        queue = QueryLogQueue(clients, "http://sqs/queue", timeout_s=0.1)
        queue.warm()
        yield queue
        await queue.aclose()


async def test_unresponsive_queue_prints_record(
    queue: QueryLogQueue, capsys: pytest.CaptureFixture[str]
) -> None:  # C01
    log = make_log()
    with pytest.raises(TimeoutError):
        await queue.for_tenant("tenant").create(log)
    assert capsys.readouterr().out == message("tenant", log) + "\n"


async def test_cancelled_send_prints_record(
    queue: QueryLogQueue, capsys: pytest.CaptureFixture[str]
) -> None:  # C01
    log = make_log()
    task = asyncio.create_task(queue.for_tenant("tenant").create(log))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert capsys.readouterr().out == message("tenant", log) + "\n"


async def test_calls_beyond_thread_count_time_out_together(
    queue: QueryLogQueue, capsys: pytest.CaptureFixture[str]
) -> None:  # C01; fault 41
    sink = queue.for_tenant("tenant")
    logs = [make_log() for _ in range(40)]
    results = await asyncio.gather(*(sink.create(log) for log in logs), return_exceptions=True)
    assert {type(result) for result in results} == {TimeoutError}
    printed = [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()]
    assert sorted(printed) == sorted(str(log.id) for log in logs)


async def test_closed_queue_prints_record(queue: QueryLogQueue, capsys: pytest.CaptureFixture[str]) -> None:
    await queue.aclose()
    with pytest.raises(RuntimeError):
        await queue.for_tenant("tenant").create(make_log())
    assert len(capsys.readouterr().out.splitlines()) == 1


async def test_printed_record_is_cut_to_cloudwatch_limit(
    queue: QueryLogQueue, capsys: pytest.CaptureFixture[str]
) -> None:  # C01
    with pytest.raises(TimeoutError):
        await queue.for_tenant("tenant").create(make_log(generated_response="é" * 100_000))
    (line,) = capsys.readouterr().out.splitlines()
    assert MAX_LINE_BYTES - 1000 < len(line) <= MAX_LINE_BYTES
    assert "characters left out by the query log]" in line


class SilentQueue(ThreadingHTTPServer):
    """SQS that accepts calls, and answers only those after ``recovered`` was set."""

    daemon_threads = True

    def __init__(self) -> None:
        self.recovered, self.end = threading.Event(), threading.Event()
        self.calls = 0
        super().__init__(("127.0.0.1", 0), _SilentHandler)


class _SilentHandler(BaseHTTPRequestHandler):
    server: SilentQueue

    def do_POST(self) -> None:
        self.server.calls += 1
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.server.recovered.is_set():
            self.server.end.wait()
            return
        digest = hashlib.md5(body["MessageBody"].encode(), usedforsecurity=False).hexdigest()
        answer = json.dumps({"MessageId": "1", "MD5OfMessageBody": digest}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's signature
        """Print nothing."""


@pytest.fixture
def silent_queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentQueue]:
    with SilentQueue() as server:
        for name, value in aws_environment(f"http://127.0.0.1:{server.server_port}").items():
            monkeypatch.setenv(name, value)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.end.set()
        server.shutdown()
        thread.join()


async def test_recovered_queue_is_used_again_within_a_second(
    silent_queue: SilentQueue, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # C01; fault 41
    monkeypatch.setenv("VECTORFORGE_DATABASE_URL", "postgresql://vectorforge_app@127.0.0.1:1/x")
    monkeypatch.setenv("VECTORFORGE_QUERY_LOG_QUEUE_URL", "http://sqs/queue")
    application = Application.build(VectorForgeConfig.from_environment())
    assert application.aws.query_log_queue is not None
    application.aws.query_log_queue.warm()
    sink = application.aws.query_log_queue.for_tenant("tenant")
    try:
        hung = await asyncio.gather(*(sink.create(make_log()) for _ in range(8)), return_exceptions=True)
        assert {type(result) for result in hung} == {TimeoutError}
        silent_queue.recovered.set()
        results: list[BaseException | None] = []
        while None not in results and len(results) < 20:  # of a quarter of a second each, at most
            results += await asyncio.gather(sink.create(make_log()), return_exceptions=True)
        assert results[-1] is None
        assert len(results) <= 12
    finally:
        await application.close()
    assert len(capsys.readouterr().out.splitlines()) == 8 + len(results) - 1  # the others are printed
