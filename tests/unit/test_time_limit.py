"""An invocation's time limit in front of apps that start in time, too late, or do not end."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from vectorforge.api.middleware.context import TimeLimit
from vectorforge.api.request_state import RequestState
from vectorforge.errors import DeadlineExceededError

START: Message = {"type": "http.response.start", "status": 200, "headers": []}


async def statuses(app: Any) -> list[int]:
    """Return the statuses of the response to a request with 50 ms, a second before the timeout."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        await asyncio.sleep(3600)
        raise AssertionError

    context = SimpleNamespace(get_remaining_time_in_millis=lambda: 1050)
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    RequestState.begin(scope)
    async with asyncio.timeout(20):
        await TimeLimit(app)({**scope, "aws.context": context}, receive, send)
    return [message["status"] for message in sent if message["type"] == "http.response.start"]


async def test_response_after_cancellation_returns_504() -> None:
    async def late(_scope: Scope, _receive: Receive, send: Send) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await send(START)

    assert await statuses(late) == [504]


async def test_swallowed_cancellation_returns_504() -> None:
    async def swallowing(_scope: Scope, _receive: Receive, send: Send) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await send({**START, "status": 500})

    assert await statuses(swallowing) == [504]


async def test_started_response_at_deadline_is_cut_off() -> None:
    async def begun(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(START)
        await asyncio.sleep(3600)

    with pytest.raises(DeadlineExceededError):
        await statuses(begun)


async def test_complete_response_survives_cancelled_background_task() -> None:
    async def whole(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b""})
        await asyncio.sleep(3600)

    assert await statuses(whole) == [200]
