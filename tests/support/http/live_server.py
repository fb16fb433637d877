"""An ASGI app behind uvicorn on a real socket, in the running event loop. Needs uvicorn (extra ``local``)."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def serve(app: Any, *, lifespan: bool = True) -> AsyncIterator[str]:
    """Serve ``app`` on a free port of 127.0.0.1 until the end of the block, with its lifespan by default.

    Yields:
        The base URL, without a slash at its end.

    Raises:
        RuntimeError: The app's lifespan failed.
    """
    import uvicorn

    config = uvicorn.Config(
        app, lifespan="on" if lifespan else "off", log_config=None, ws="none", timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # Connections inherit it. asyncio sets it only where the socket's protocol is named, which it is not
        # here; without it each answer of two writes waits 40 ms for an acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            while not server.started:
                if serving.done():
                    raise RuntimeError("The app did not start.") from serving.exception()
                await asyncio.sleep(0.005)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving
