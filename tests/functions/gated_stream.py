"""A stream of lines that a test releases one by one, and the function's log."""

import asyncio
import os
from collections.abc import AsyncIterator


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201  # the function's log, which the tests read


async def gated_tokens() -> AsyncIterator[bytes]:
    """Yield lines from ``GATE`` (host:port), as a stand-in for a provider's stream."""
    host, port = os.environ["GATE"].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        while line := await reader.readline():
            yield line
    finally:
        writer.close()
        say("generator finalised")
