"""Handlers of the Lambda figures: the plain app streamed by our runtime, and two that time single chunks."""

import asyncio
import os
import socket
import statistics
import time
from typing import Any

from figures.lambda_plain import CHUNK, app

from vectorforge.runtime import StreamingHandler

_FRAME = b"%x\r\n%b\r\n" % (len(CHUNK), CHUNK)

streamed = StreamingHandler(app)


async def _timed_chunks(scope: Any, receive: Any, send: Any) -> None:
    """An ASGI app that times each of its sends; the figures are its last chunk."""
    if scope["type"] != "http":
        return
    number, pause_ms = scope["query_string"].decode().split(",")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    message = {"type": "http.response.body", "body": CHUNK, "more_body": True}
    spent, cpu_started = [], time.process_time()
    for _ in range(int(number)):
        begun = time.perf_counter()
        await send(message)
        spent.append(time.perf_counter() - begun)
        if float(pause_ms):
            await asyncio.sleep(float(pause_ms) / 1000)
    await send({"type": "http.response.body", "body": _figures(spent, cpu_started), "more_body": False})


timed = StreamingHandler(_timed_chunks, lifespan="off")


def raw_socket(event: dict[str, Any], _context: Any) -> str:
    """Send the same frames with ``sendall`` to a socket whose data is dropped, as the baseline."""
    spent, cpu_started = [], time.process_time()
    pause_s = float(event["pause_ms"]) / 1000
    with socket.create_connection((event["host"], event["port"])) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(int(event["number"])):
            begun = time.perf_counter()
            connection.sendall(_FRAME)
            spent.append(time.perf_counter() - begun)
            if pause_s:
                time.sleep(pause_s)
    return _figures(spent, cpu_started).decode()


def _figures(spent: list[float], cpu_started: float) -> bytes:
    """Return microseconds per chunk (median, 95th percentile) and CPU time per chunk, pauses included."""
    cpu_us = (time.process_time() - cpu_started) / len(spent) * 1e6
    p95 = statistics.quantiles(spent, n=20)[-1]
    return f"{os.getpid()},{statistics.median(spent) * 1e6:.3f},{p95 * 1e6:.3f},{cpu_us:.3f}".encode()
