"""The sink alone: what SQS does not take in time is printed, once, whatever ends the waiting."""

import asyncio
import json
import socket
from collections.abc import Iterator

import pytest

from vectorforge.aws.clients import AwsClients
from vectorforge.aws.query_log_queue import MAX_LINE_BYTES, QueryLogQueue
from vectorforge.testing.aws_services import aws_environment
from vectorforge.testing.query_logs import make_log, message


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[QueryLogQueue]:
    """Leads to a port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        for name, value in aws_environment(f"http://127.0.0.1:{server.getsockname()[1]}").items():
            monkeypatch.setenv(name, value)
        clients = AwsClients(read_timeout_s=1, max_attempts=1)
        queue = QueryLogQueue(clients, "http://sqs/queue", timeout_s=0.1)
        queue.warm()
        yield queue
        queue.close()
        clients.close()


async def test_silence_is_given_up(queue: QueryLogQueue, capsys: pytest.CaptureFixture[str]) -> None:  # C01
    log = make_log()
    with pytest.raises(TimeoutError):
        await queue.for_tenant("tenant").create(log)
    assert capsys.readouterr().out == message("tenant", log) + "\n"


async def test_cancelling_prints_too(queue: QueryLogQueue, capsys: pytest.CaptureFixture[str]) -> None:  # C01
    log = make_log()
    task = asyncio.create_task(queue.for_tenant("tenant").create(log))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert capsys.readouterr().out == message("tenant", log) + "\n"


async def test_more_calls_than_threads_are_given_up_together(
    queue: QueryLogQueue, capsys: pytest.CaptureFixture[str]
) -> None:  # C01; fault 41
    sink = queue.for_tenant("tenant")
    logs = [make_log() for _ in range(40)]
    results = await asyncio.gather(*(sink.create(log) for log in logs), return_exceptions=True)
    assert {type(result) for result in results} == {TimeoutError}
    printed = [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()]
    assert sorted(printed) == sorted(str(log.id) for log in logs)


async def test_a_closed_queue_prints(queue: QueryLogQueue, capsys: pytest.CaptureFixture[str]) -> None:
    queue.close()
    with pytest.raises(RuntimeError):
        await queue.for_tenant("tenant").create(make_log())
    assert len(capsys.readouterr().out.splitlines()) == 1


async def test_a_printed_record_is_cut_to_what_cloudwatch_takes(
    queue: QueryLogQueue, capsys: pytest.CaptureFixture[str]
) -> None:  # C01
    with pytest.raises(TimeoutError):
        await queue.for_tenant("tenant").create(make_log(generated_response="é" * 100_000))
    (line,) = capsys.readouterr().out.splitlines()
    assert MAX_LINE_BYTES - 1000 < len(line) <= MAX_LINE_BYTES
    assert "characters left out by the query log]" in line
