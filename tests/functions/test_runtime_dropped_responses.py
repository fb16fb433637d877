"""Responses dropped midway: the app closes its generator, or the connection breaks."""

import asyncio

import pytest

from infra.emulator.lambda_service.invocation import Invocation
from tests.functions.runtime_driver import (
    Gate,
    function,
    http_event,
    prelude_and_body,
)
from vectorforge.runtime.errors import ResponseLostError
from vectorforge.runtime.response_stream import ResponseStream
from vectorforge.runtime.response_stream import StreamingInvocation as RuntimeInvocation


async def test_dropped_generator_is_closed_before_next_invocation() -> None:
    gate = Gate()

    closed_before_next: list[bool] = []

    async def note(_invocation: Invocation, _data: bytes) -> None:
        await asyncio.sleep(0.02)  # the line may be delayed in its pipe
        closed_before_next.append("slow generator closed" in running.output.text)

    async with gate.open() as environment, function("careless_handler", environment=environment) as running:
        invocation = await running.invoke(http_event("/drops-generator"), hooks={"next_polled_again": note})
        await gate.connected.acquire()
        gate.release("only")
        async with asyncio.timeout(10):
            await invocation.completed.wait()
            await gate.lost.wait()
    assert closed_before_next == [True]
    assert prelude_and_body(invocation)[1] == b"only\nend"


async def test_connection_broken_before_first_byte_raises_response_lost() -> None:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    lost = asyncio.Event()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        runtime_invocation = RuntimeInvocation(f"{host}:{port}", "request", None)
        stream = await ResponseStream.open(runtime_invocation, lost.set)
        assert not runtime_invocation.answered
        async with asyncio.timeout(10):
            await lost.wait()
        with pytest.raises(ResponseLostError):
            await stream.write(b"first")
        assert not runtime_invocation.answered
        await stream.abort()
