"""A runtime that speaks the Runtime API byte by byte, correctly or not."""

import asyncio
from collections.abc import Iterable
from typing import Self

PREFIX = "/2018-06-01/runtime"
PATIENCE_S = 60.0
STREAM_HEADERS = {
    "Lambda-Runtime-Function-Response-Mode": "streaming",
    "Content-Type": "application/vnd.awslambda.http-integration-response",
    "Transfer-Encoding": "chunked",
    "Trailer": "Lambda-Runtime-Function-Error-Type, Lambda-Runtime-Function-Error-Body",
}


class RawRuntime:
    """One connection to a Runtime API."""

    def __init__(self, address: str) -> None:
        self.host, port = address.split(":")
        self.port = int(port)
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def next(self) -> tuple[dict[str, str], bytes]:
        """Return headers (lower case) and body of the next event."""
        status, headers, body = await self.request("GET", "/invocation/next")
        assert status == 200, body
        return headers, body

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        await self.send_head(method, path, {"Content-Length": str(len(body)), **(headers or {})})
        self.writer.write(body)
        return await self.answer()

    async def send_head(self, method: str, path: str, headers: dict[str, str]) -> None:
        lines = [f"{method} {PREFIX}{path} HTTP/1.1", "Host: runtime"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        await self.writer.drain()

    async def send_chunk(self, data: bytes) -> None:
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self.writer.drain()

    async def end_chunks(self, trailers: Iterable[tuple[str, str]] = ()) -> tuple[int, dict[str, str], bytes]:
        self.writer.write(b"0\r\n" + b"".join(f"{k}: {v}\r\n".encode() for k, v in trailers) + b"\r\n")
        return await self.answer()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(PATIENCE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            body = await self.reader.readexactly(int(headers["content-length"]))
        return int(head[0].split()[1]), headers, body

    async def stream(self, request_id: str, more: dict[str, str] | None = None) -> None:
        """Open a streamed response."""
        await self.send_head("POST", f"/invocation/{request_id}/response", STREAM_HEADERS | (more or {}))
