"""Parsers of vendors' responses, over a connection to a scripted server."""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Final

from pydantic import SecretStr

from tests.fuzz.event_loop import loop, result_of
from vectorforge.embedding.responses import error_for_status as embedding_error
from vectorforge.embedding.responses import read_vectors
from vectorforge.errors import EmbeddingError, VectorForgeError
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.failures import error_for_status
from vectorforge.llm.providers.anthropic import AnthropicProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.llm.types import LLMResponse, StreamEnd, TextDelta
from vectorforge.retriever.rerank import read_scores
from vectorforge.vendors.response import VendorStatusError

_QUESTION: Final = ({"role": "user", "content": "How long?"},)
_STATUSES: Final = (200, 200, 200, 200, 200, 400, 429, 500)
"""Vendors, selected by the first byte of an input."""


class _Vendor:
    """Answers every request with ``body`` and ``status``."""

    def __init__(self) -> None:
        self.body, self.status = b"", 200
        server = loop().run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        key = SecretStr("key-0123456789")
        self.providers: dict[str, BaseLLMProvider] = {
            "openai": OpenAIProvider(key, base_url=f"{address}/v1", retries=0),
            "anthropic": AnthropicProvider(key, base_url=address, retries=0),
        }
        self._server = server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
                )
                await reader.readexactly(int(length.partition(b":")[2]))
                begin = f"HTTP/1.1 {self.status} Said\r\ncontent-length: {len(self.body)}\r\n\r\n"
                writer.write(begin.encode() + self.body)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            writer.close()


_vendors: list[_Vendor] = []


def _vendor() -> _Vendor:
    if not _vendors:
        _vendors.append(_Vendor())
    return _vendors[0]


def _ask(provider: str, content: bytes, *, stream: bool) -> None:
    vendor = _vendor()
    vendor.status = _STATUSES[content[0] % len(_STATUSES)] if content else 200
    vendor.body = content[1:]
    selected = vendor.providers[provider]
    try:
        _usable(result_of(_streamed(selected) if stream else selected.generate(_QUESTION)))
    except VectorForgeError as exc:
        str(exc).encode()


async def _streamed(provider: BaseLLMProvider) -> LLMResponse:
    texts: list[str] = []
    end: LLMResponse | None = None
    async for event in provider.stream_events(_QUESTION):
        if isinstance(event, TextDelta):
            texts.append(event.text)
        elif isinstance(event, StreamEnd):
            end = event.response
    assert end is not None
    assert end.content == "".join(texts)
    return end


def _usable(answer: LLMResponse) -> None:
    """Check the invariants that the service relies on."""
    answer.content.encode()
    answer.model.encode()
    for number in (answer.prompt_tokens, answer.completion_tokens):
        assert type(number) is int
        assert 0 <= number < 2**31


def _reader(provider: str, *, stream: bool) -> Callable[[bytes], None]:
    def read(content: bytes) -> None:
        _ask(provider, content, stream=stream)

    return read


def read_complaint(content: bytes) -> None:
    """Parse a vendor's error."""
    error = VendorStatusError(400, {}, content)
    assert isinstance(error.text, str)
    assert error.param is None or isinstance(error.param, str)
    assert error.code is None or isinstance(error.code, str)


def read_retry_after(content: bytes) -> None:
    """Parse a vendor's retry delay: some seconds, or none."""
    name, _, value = content.decode("latin-1").partition(":")
    headers = {name.strip().lower(): value.strip(), "retry-after": value.strip()}
    for seconds in (
        error_for_status("openai", 429, headers).retry_after_s,
        embedding_error(429, "m", headers).retry_after_s,
    ):
        assert seconds is None or 0 <= seconds < math.inf


def read_embeddings(content: bytes) -> None:
    """Parse a response with one vector per text."""
    try:
        for vector in read_vectors(content):
            assert all(isinstance(number, float) for number in vector)
    except EmbeddingError:
        return


def read_ranking(content: bytes) -> None:
    """Parse a reranker's response: one finite score for each of two texts."""
    try:
        scores = read_scores(content, 2)
    except ValueError:
        return
    assert len(scores) == 2
    assert all(map(math.isfinite, scores))


_USAGE: Final = b'"usage": {"prompt_tokens": 3, "completion_tokens": 1}'
_MESSAGE: Final = b'{"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 3}}}'
_ANTHROPIC_ANSWER: Final = (
    b'0{"model": "m", "content": [{"type": "text", "text": "Five"}], "stop_reason": "end_turn", '
    b'"usage": {"input_tokens": 3, "output_tokens": 1}}'
)
_DELTA: Final = b'{"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Five"}}'


def vendor_inputs(parser: str) -> Sequence[bytes]:
    """Return valid inputs of the parsers here."""
    return {
        "openai-answer": [
            b'0{"model": "m", "choices": [{"message": {"content": "Five"}, "finish_reason": "stop"}], '
            + _USAGE
            + b"}",
            b'5{"error": {"param": "temperature", "code": "unsupported_value", "message": "no"}}',
        ],
        "openai-stream": [
            b'0data: {"model": "m", "choices": [{"delta": {"content": "Five"}}]}\n\n'
            b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'
            b'data: {"choices": [], ' + _USAGE + b"}\n\ndata: [DONE]\n\n",
            b'0data: {"error": {"code": 429, "type": "rate_limit"}}\n\n',
        ],
        "anthropic-answer": [_ANTHROPIC_ANSWER],
        "anthropic-stream": [
            b"0data: " + _MESSAGE + b"\n\nevent: x\ndata: " + _DELTA + b"\n\n"
            b'data: {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, '
            b'"usage": {"output_tokens": 1}}\n\ndata: {"type": "message_stop"}\n\n',
            b'0data: {"type": "error", "error": {"type": "overloaded_error"}}\n\n',
        ],
        "complaint": [b'{"error": {"param": "a", "code": "b", "message": "no"}}', b"<html>"],
        "retry-after": [
            b"retry-after: 2",
            b"retry-after-ms: 1500",
            b"retry-after: Sat, 21 Nov 2026 12:00:30 GMT",
        ],
        "embeddings": [
            b'{"data": [{"index": 1, "embedding": "AACAPwAAAEA="}, {"index": 0, "embedding": [1, 0.5]}]}',
            b'{"data": [{"embedding": [1, NaN]}]}',
        ],
        "ranking": [
            b'{"results": [{"index": 1, "relevance_score": 0.5}, {"index": 0, "relevance_score": 1}]}',
            b'[{"index": 0, "score": 2}, {"index": 1, "score": -1e3}]',
        ],
    }[parser]


VENDOR_PARSERS: Final[dict[str, Callable[[bytes], None]]] = {
    "openai-answer": _reader("openai", stream=False),
    "openai-stream": _reader("openai", stream=True),
    "anthropic-answer": _reader("anthropic", stream=False),
    "anthropic-stream": _reader("anthropic", stream=True),
    "complaint": read_complaint,
    "retry-after": read_retry_after,
    "embeddings": read_embeddings,
    "ranking": read_ranking,
}
"""Parsers by their names on the command line."""
_NESTED: Final = b"[" * 1000 + b"]" * 1000
VENDOR_FOUND: Final[dict[str, Sequence[bytes]]] = {
    "openai-answer": [
        b'0{"choices": [{"message": {"content": [{"type": "text"}]}}]}',
        b'0{"choices": [{"message": {"content": "a"}}], "usage": {"prompt_tokens": "3"}}',
        b'0{"model": {}, "choices": [{"message": {"content": "a"}}]}',
    ],
    "complaint": [_NESTED],
    "retry-after": [
        b"retry-after: Mon, 01 Jan 99999999999 00:00:00 GMT",
        b"retry-after: Mon, 01 Jan 2026 00:00:00 +99999999999999",
        b"retry-after: inf",
    ],
    "embeddings": [b"[" * 2000, b'{"data": [{"embedding": [NaN, 1' + b"0" * 400 + b"]}]}"],
    "ranking": [b"[" * 2000],
}
"""Inputs of earlier findings."""
