"""Reading a vendor's answer: whole as JSON, or event by event as it arrives (server-sent events).

The SDKs' own stream readers build a typed object for every token, four to six times the CPU time of this
one, and take a stream that merely ends for a complete answer.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Protocol

_MAX_EVENT_BYTES = 4 * 1024 * 1024
_DRAIN_S = 0.1


class ResponseBody(Protocol):
    """What both SDKs' streaming responses offer."""

    def iter_bytes(self) -> AsyncIterator[bytes]:
        """The decoded body, in pieces."""
        ...

    async def read(self) -> bytes:
        """The decoded body."""
        ...


async def read_json(response: ResponseBody) -> Any:
    """The whole body, parsed.

    Raises:
        ConnectionError: The connection broke before its end.
        ValueError: It is not JSON.
    """
    try:
        body = await response.read()
    except Exception as exc:
        raise ConnectionError("the response body broke off") from exc
    return json.loads(body)


async def events(response: ResponseBody) -> AsyncGenerator[str, None]:
    """The data of each event, in order; comments, event names and ids are left out.

    Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation.
    Two departures: a lone carriage return ends no line (no vendor sends it), and an event whose lines are
    complete counts at the end of the body even without the empty line after it.

    Raises:
        ConnectionError: The connection broke, or an event is over 4 MiB.
        UnicodeDecodeError: An event is not UTF-8.
    """
    rest = b""
    data: list[bytes] = []
    chunks = response.iter_bytes()
    while (chunk := await _next_chunk(chunks)) is not None:
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _MAX_EVENT_BYTES:
            raise ConnectionError("an event of the stream is too long")
        for raw in lines:
            line = raw.removesuffix(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data).decode()
                data.clear()
    if data:
        yield b"\n".join(data).decode()


async def drain(rest: AsyncIterator[object]) -> None:
    """Read what follows the last event, for at most 0.1 s, so that the connection can be used again."""
    try:
        async with asyncio.timeout(_DRAIN_S):
            async for _ in rest:
                pass
    except (TimeoutError, ConnectionError, ValueError):
        return  # the answer is complete; only the connection is lost


async def _next_chunk(chunks: AsyncIterator[bytes]) -> bytes | None:
    try:
        return await anext(chunks, None)
    except Exception as exc:  # whatever the SDK's HTTP client raises when a connection breaks
        raise ConnectionError("the stream broke off") from exc
