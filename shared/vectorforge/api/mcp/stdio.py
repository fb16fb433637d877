"""The tools over a process's stdin and stdout, for a host on the same machine."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, cast

from mcp.server.stdio import stdio_server

from vectorforge.api.mcp.caller import Caller
from vectorforge.api.mcp.server import make_server
from vectorforge.bootstrap import Application, TenantServices

if TYPE_CHECKING:
    import anyio

_STDIN = 0
_PIECE_BYTES = 64 * 1024


async def serve_stdio(application: Application, tenant: TenantServices) -> None:
    """Answer messages of stdin on stdout until stdin ends; what else is printed goes to stderr."""
    server = make_server(lambda _: Caller.on_this_machine(application, tenant))
    lines = cast("anyio.AsyncFile[str]", _read_lines(_STDIN))  # it is only iterated over
    async with stdio_server(stdin=lines) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def _read_lines(file: int) -> AsyncIterator[str]:
    """The lines of a file that another thread waits for.

    The package waits in a thread that cannot be given up, so that a signal would end the process only after
    the next line.
    """
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        piece = b"more"
        while piece:
            try:
                piece = os.read(file, _PIECE_BYTES)
            except OSError:
                piece = b""
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            except RuntimeError:  # the loop has been closed
                return

    threading.Thread(target=read, name="stdin", daemon=True).start()
    rest = b""
    while piece := await pieces.get():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")
