"""A model of minimal cost: OpenAI's embeddings and chat completions, on asyncio's bare protocol.

    python -m peers.model

Prints its port. A request takes about 50 microseconds and a vector is a function of its text, so that
mostly the contestant is measured. Run in the environment "raw", which has uvloop, orjson and numpy.
"""

import asyncio
import base64
import hashlib
import time
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import orjson
import uvloop

from peers.job import ANSWER_TOKENS, DIMENSION, TOKEN_MARK

_BANK = 2048
_CENTERS = 256
_PIECES = [f" {TOKEN_MARK}{number:03d}" for number in range(ANSWER_TOKENS)]
_ANSWER = "".join(_PIECES)
_TOKENS_AT_A_TIME = 16
"""Pieces written before other connections are served."""


class Vectors:
    """Unit vectors around 256 centers in a subspace of 48 dimensions, with a little noise, as texts'."""

    def __init__(self, dimension: int) -> None:
        rng = np.random.default_rng(dimension)
        basis = rng.standard_normal((48, dimension)) / dimension**0.5
        self._centers = (rng.standard_normal((_CENTERS, 48)) @ basis).astype("f4")
        self._local = (0.6 * rng.standard_normal((_BANK, 48)) @ basis).astype("f4")
        self._noise = (0.05 * rng.standard_normal((_BANK, dimension)) / dimension**0.5).astype("f4")

    def of(self, text: bytes) -> "np.ndarray[Any, np.dtype[np.float32]]":
        """Return the vector of a text, always the same."""
        digest = int.from_bytes(hashlib.blake2b(text, digest_size=12).digest(), "little")
        vector = self._centers[digest % _CENTERS] + self._local[(digest >> 8) % _BANK]
        vector += np.float32(0.5) * self._local[(digest >> 24) % _BANK]
        vector += self._noise[(digest >> 40) % _BANK]
        return np.asarray(vector / np.sqrt(np.dot(vector, vector)), dtype="<f4")


_vectors = Vectors(DIMENSION)


def embeddings(body: dict[str, Any]) -> bytes:
    """Return the response to ``POST /v1/embeddings``; tokens from the client are treated as text."""
    given = body["input"]
    inputs = [given] if isinstance(given, str) or (given and isinstance(given[0], int)) else given
    texts = [item.encode() if isinstance(item, str) else repr(item).encode() for item in inputs]
    rows = []
    for index, text in enumerate(texts):
        vector = _vectors.of(text)
        if body.get("encoding_format") == "base64":
            value = b'"' + base64.b64encode(vector.tobytes()) + b'"'
        else:
            value = orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY)
        rows.append(b'{"object":"embedding","index":%d,"embedding":%s}' % (index, value))
    tokens = sum(len(text) // 4 + 1 for text in texts)
    return b'{"object":"list","data":[%s],"model":"%s","usage":{"prompt_tokens":%d,"total_tokens":%d}}' % (
        b",".join(rows),
        str(body["model"]).encode(),
        tokens,
        tokens,
    )


def _usage(body: dict[str, Any]) -> dict[str, int]:
    prompt = sum(len(str(message["content"])) for message in body["messages"]) // 4
    return {
        "prompt_tokens": prompt,
        "completion_tokens": ANSWER_TOKENS,
        "total_tokens": prompt + ANSWER_TOKENS,
    }


def completion(body: dict[str, Any]) -> bytes:
    """Return the response to ``POST /v1/chat/completions``."""
    message = {"role": "assistant", "content": _ANSWER, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return orjson.dumps(
        {
            "id": "chatcmpl-0",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body["model"],
            "system_fingerprint": "fp_0",
            "choices": [choice],
            "usage": _usage(body),
        }
    )


def events(body: dict[str, Any]) -> Iterator[bytes]:
    """Yield the events of a streamed completion."""
    with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
    fixed = {
        "id": "chatcmpl-0",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": body["model"],
        "system_fingerprint": "fp_0",
    }
    before = orjson.dumps(fixed)[:-1] + b',"choices":['
    after = b'],"usage":null}' if with_usage else b"]}"

    def event(delta: bytes, finish: bytes = b"null") -> bytes:
        choice = b'{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}' % (delta, finish)
        return b"data: %s%s%s\n\n" % (before, choice, after)

    yield event(b'{"role":"assistant","content":"","refusal":null}')
    for piece in _PIECES:
        yield event(b'{"content":"%s"}' % piece.encode())
    yield event(b"{}", b'"stop"')
    if with_usage:
        yield b'data: %s],"usage":%s}\n\n' % (before, orjson.dumps(_usage(body)))
    yield b"data: [DONE]\n\n"


def _head(media_type: bytes, framing: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-type: %s\r\nx-request-id: req_0\r\n%s\r\n\r\n" % (
        status,
        media_type,
        framing,
    )


class ModelProtocol(asyncio.Protocol):
    """One connection: requests with a content-length, one after another."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not one of asyncio's classes

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answering is not None:
            self._answering.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._answering is None:
            self._answer_next()

    def _answer_next(self) -> None:
        while self._answering is None and (request := self._next_request()) is not None:
            path, body = request
            if path.endswith(b"/chat/completions") and body.get("stream"):
                self._transport.write(_head(b"text/event-stream", b"transfer-encoding: chunked"))
                self._answering = asyncio.ensure_future(self._stream(body))
            elif path.endswith(b"/chat/completions"):
                self._write_json(completion(body))
            elif path.endswith(b"/embeddings"):
                self._write_json(embeddings(body))
            else:
                self._write_json(b'{"error":{"message":"There is no such path."}}', b"404 Not Found")

    def _next_request(self) -> tuple[bytes, dict[str, Any]] | None:
        """Return path and body of the next complete request, or None."""
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return None
        lines = bytes(self._received[:end]).split(b"\r\n")
        length = 0
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        whole = end + 4 + length
        if len(self._received) < whole:
            return None
        body = bytes(self._received[end + 4 : whole])
        del self._received[:whole]
        return lines[0].split(b" ")[1], orjson.loads(body or b"{}")

    def _write_json(self, body: bytes, status: bytes = b"200 OK") -> None:
        head = _head(b"application/json", b"content-length: %d" % len(body), status)
        self._transport.write(head + body)

    async def _stream(self, body: dict[str, Any]) -> None:
        for number, event in enumerate(events(body)):
            if self._transport.is_closing():
                return
            self._transport.write(b"%x\r\n%s\r\n" % (len(event), event))
            if number % _TOKENS_AT_A_TIME == 0:
                await asyncio.sleep(0)
        self._transport.write(b"0\r\n\r\n")
        self._answering = None
        self._answer_next()


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(ModelProtocol, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve())
