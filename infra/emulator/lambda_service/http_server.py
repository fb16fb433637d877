"""An HTTP/1.1 server on 127.0.0.1 whose subclass sees every message as it comes."""

import asyncio
from abc import ABC, abstractmethod
from typing import Self

from infra.emulator.lambda_service.http_messages import (
    MAX_HEAD_BYTES,
    MalformedMessageError,
    RequestHead,
    read_head,
    response_head,
)


class HttpServer(ABC):
    """Listens while it is an entered context manager; connections are kept alive.

    Args:
        port: 0 takes a free one.
    """

    def __init__(self, *, port: int = 0) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def exchange(
        self, head: RequestHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Read one request's body and answer it. Close ``writer`` when no other request may follow."""

    @property
    def address(self) -> str:
        """``127.0.0.1:<port>``.

        Raises:
            RuntimeError: It does not listen.
        """
        if self._server is None:
            raise RuntimeError(f"{type(self).__name__} does not listen.")
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=MAX_HEAD_BYTES)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is None:
            return
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def drain(self, timeout_s: float) -> None:
        """Wait until every connection has ended, which those of a dead client do by themselves."""
        if self._connections:
            await asyncio.wait(set(self._connections), timeout=timeout_s)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio.start_server runs it in a task
        self._connections.add(task)
        try:
            await self._serve_requests(reader, writer)
            writer.close()
            await writer.wait_closed()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.transport.abort()  # the client is gone
        except asyncio.CancelledError:
            writer.transport.abort()  # the server closes
        finally:
            self._connections.discard(task)

    async def _serve_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing() and (head := await read_head(reader)) is not None:
                if "100-continue" in head.get("expect").lower():
                    writer.write(response_head(100, ()))
                await self.exchange(head, reader, writer)
                await writer.drain()
                if head.version == "HTTP/1.0" or "close" in head.get("connection").lower():
                    return
        except MalformedMessageError:
            writer.write(response_head(400, [("content-length", "0"), ("connection", "close")]))
