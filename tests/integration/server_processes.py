"""Servers as separate processes, which a test may kill."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.aws.live_query_function import QuerySurroundings

_SERVER = Path(__file__).with_name("streaming_server.py")


@asynccontextmanager
async def server_process(surroundings: QuerySurroundings) -> AsyncIterator[tuple[int, str]]:
    """Start a server process; yield its process id and URL."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(_SERVER),
        env={**os.environ, **surroundings.environment()},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield process.pid, (await process.stdout.readline()).decode().strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
