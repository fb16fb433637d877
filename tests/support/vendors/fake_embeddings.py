"""A server with OpenAI's embeddings protocol that needs no model."""

import asyncio
import base64
import json
from array import array
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

from aiohttp import web
from pydantic import TypeAdapter

from tests.support.vendors.hashing_embedder import hashed_vector


@dataclass(slots=True)
class Reply:
    """Scripted reaction to one request."""

    status: int = 200
    body: str | Mapping[str, Any] | None = None
    """Body to send, or None for an error of the status in OpenAI's format."""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    gate: Callable[[], Awaitable[None]] | None = None
    """Awaited before the answer."""
    hangs_up: bool = False
    """Close the connection without a response."""
    change: Callable[[list[dict[str, Any]]], list[Any]] | None = None
    """Answer, but with the items of ``data`` changed."""


class FakeEmbeddingsServer:
    """``POST /v1/embeddings`` as OpenAI documents it, with ``hashed_vector`` for a model, on a real socket.

    https://platform.openai.com/docs/api-reference/embeddings/create

    Args:
        dimension: Length of the vectors, unless the request has ``dimensions``.
        api_key: Key required in the Authorization header; None accepts any.
        knows_base64: False always returns floats, as some servers do.
        fields: Types of the vendor's own request fields; OpenAI's are its SDK's. Others are rejected.
        path: Path of the endpoint.
        key_header: Header of the key; only that of Authorization begins with "Bearer".
    """

    def __init__(
        self,
        *,
        dimension: int = 8,
        api_key: str | None = None,
        knows_base64: bool = True,
        fields: Mapping[str, Any] | None = None,
        path: str = "/v1/embeddings",
        key_header: str = "Authorization",
    ) -> None:
        self._dimension = dimension
        self.api_key = api_key
        self._knows_base64 = knows_base64
        self._path = path
        self._key_header = key_header
        self._fields = {name: TypeAdapter(kind) for name, kind in (fields or {}).items()}
        self._runner: web.AppRunner | None = None
        self.base_url = ""
        """Base URL with the version; set once the server runs."""
        self.requests: list[dict[str, Any]] = []
        """Bodies of all requests, in the order of arrival."""
        self.replies: list[Reply] = []
        """Scripted reactions, one for each request; then requests succeed."""
        self.refused_text: str | None = None
        """A request holding a text that contains this gets status 400."""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post(self._path, self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.base_url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def drop_connections(self) -> None:
        """Close every connection, as a load balancer does with idle ones."""
        assert self._runner is not None
        assert self._runner.server is not None
        for connection in self._runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        reply = self.replies.pop(0) if self.replies else Reply()
        await asyncio.sleep(reply.delay_s)
        if reply.gate is not None:
            await reply.gate()
        if reply.hangs_up and request.transport is not None:
            request.transport.abort()
        key = request.headers.get(self._key_header, "")
        if self.api_key is not None and key.removeprefix("Bearer ") != self.api_key:  # quoted, as OpenAI does
            return _error(401, f"Incorrect API key provided: {key}")
        try:
            self._check(body)
        except ValueError as exc:
            return _error(400, f"Invalid request: {exc}")
        if self.refused_text is not None and any(self.refused_text in text for text in body["input"]):
            return _error(400, f"Invalid input: {body['input']}")
        if reply.body is not None:
            text = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
            return _json(text, reply.status, reply.headers)
        if reply.status != 200:
            return _error(reply.status, "Something in our words", reply.headers)
        items = self._items(body)
        data = reply.change(items) if reply.change else items
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return _json(json.dumps({"object": "list", "data": data, "model": body["model"], "usage": usage}))

    def _check(self, body: Mapping[str, Any]) -> None:
        own = {name: value for name, value in body.items() if name in self._fields}
        for name, value in own.items():
            self._fields[name].validate_python(value)
        if missing := self._fields.keys() - body.keys() - {"output_dimension"}:
            raise ValueError(f"missing fields: {sorted(missing)}")
        parameters, names = _types()
        shaped = {name: value for name, value in body.items() if name not in own}
        if unknown := shaped.keys() - names:
            raise ValueError(f"unknown fields: {sorted(unknown)}")
        parameters.validate_python(shaped)

    def _items(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        dimension = body.get("dimensions") or body.get("output_dimension") or self._dimension
        as_base64 = self._knows_base64 and body.get("encoding_format") == "base64"
        items = []
        for index, text in enumerate(body["input"]):
            vector = hashed_vector(text, dimension)
            encoded = base64.b64encode(array("f", vector).tobytes()).decode() if as_base64 else vector
            items.append({"object": "embedding", "index": index, "embedding": encoded})
        return items


@cache
def _types() -> tuple[TypeAdapter[Any], frozenset[str]]:
    from openai.types import EmbeddingCreateParams

    names = EmbeddingCreateParams.__required_keys__ | EmbeddingCreateParams.__optional_keys__
    return TypeAdapter(EmbeddingCreateParams), frozenset(names)


def _json(text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(text=text, status=status, headers=headers, content_type="application/json")


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return _json(json.dumps({"error": error}), status, headers)
