"""Reading a vendor's answer: whole as JSON, or event by event as it arrives (server-sent events).

The SDKs' own stream readers build a typed object for every token, ten times the CPU time of this one, and
take a stream that merely ends for a complete answer.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Protocol

import orjson

_MAX_EVENT_BYTES = 4 * 1024 * 1024
_DRAIN_S = 0.1


class ResponseBody(Protocol):
    """What an answer offers whose body has not been read; see ``vectorforge.vendors.session``."""

    async def chunk(self) -> bytes:
        """What has arrived, or what arrives next; empty at the end. Raises ``ConnectionError``."""
        ...

    async def read(self) -> bytes:
        """All of it. Raises ``ConnectionError``, and ``ValueError`` when it is too long."""
        ...

    @property
    def is_read(self) -> bool:
        """Whether the end has been read."""
        ...


async def read_json(response: ResponseBody) -> Any:
    """The whole body, parsed.

    Raises:
        ConnectionError: The connection broke before its end.
        ValueError: It is not JSON, or too long.
    """
    return orjson.loads(await response.read())


async def events(response: ResponseBody) -> AsyncGenerator[list[bytes], None]:
    """The data of the events, in order, those that arrived together in one list.

    Comments, event names and ids are left out.
    Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation.
    Two departures: a lone carriage return ends no line (no vendor sends it), and an event whose lines are
    complete counts at the end of the body even without the empty line after it.

    Raises:
        ConnectionError: The connection broke, or an event is over 4 MiB.
    """
    rest = b""
    data: list[bytes] = []
    size = 0
    while chunk := await response.chunk():
        arrived = rest + chunk
        if not data and (found := _plain_events(arrived)):
            rest = b""
        else:
            *lines, rest = arrived.split(b"\n")
            found = []
            for raw in lines:
                line = raw.removesuffix(b"\r")
                if line.startswith(b"data:"):
                    data.append(line[5:].removeprefix(b" "))
                    size += len(line)
                elif not line and data:
                    found.append(data[0] if len(data) == 1 else b"\n".join(data))
                    data, size = [], 0
        if found:
            yield found
        if len(rest) + size > _MAX_EVENT_BYTES:
            raise ConnectionError("an event of the stream is too long")
    if data:
        yield [b"\n".join(data)]


def _plain_events(arrived: bytes) -> list[bytes]:
    """The data of events that are whole and have one line of data and nothing else; where one is not, none.

    So most vendors write a token, and finding all at once takes a quarter of the time.
    """
    if not (arrived.startswith(b"data: ") and arrived.endswith(b"\n\n")):
        return []
    whole = arrived[6:-2]
    found = whole.split(b"\n\ndata: ")
    is_plain = whole.count(b"\n") == 2 * (len(found) - 1) and b"\r" not in whole
    return found if is_plain else []


async def finish(response: ResponseBody) -> None:
    """Read what follows the last event, for at most 0.1 s, so that the connection can be used again."""
    if response.is_read:
        return
    try:
        async with asyncio.timeout(_DRAIN_S):
            while await response.chunk():
                pass
    except (TimeoutError, ConnectionError):
        return  # the answer is complete; only the connection is lost


async def drain(rest: AsyncIterator[object]) -> None:
    """The same for a stream of another kind."""
    try:
        async with asyncio.timeout(_DRAIN_S):
            async for _ in rest:
                pass
    except (TimeoutError, ConnectionError, ValueError):
        return
