"""A vendor's HTTP API on a real socket, with scripted behavior. Needs aiohttp (a development dependency)."""

import asyncio
import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

from tests.support.vendors.vendor_behaviour import Behaviour as Behaviour
from tests.support.vendors.vendor_behaviour import Failure as Failure
from tests.support.vendors.vendor_behaviour import FinishWord as FinishWord
from tests.support.vendors.vendor_behaviour import Refusal as Refusal
from tests.support.vendors.vendor_behaviour import Reply as Reply
from tests.support.vendors.vendor_behaviour import SmallContext as SmallContext
from tests.support.vendors.vendor_behaviour import ToolCall as ToolCall


@dataclass(slots=True)
class RecordedRequest:
    """A request of a client."""

    path: str
    headers: Mapping[str, str]
    body: Any
    connection: int
    """Number of its connection, from 0."""
    client_closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set if the client closed the connection before the response was complete."""


class FakeVendor(ABC):
    """Serves scripted behaviors in order, then plain replies; rejects requests as the real API would.

    Use as ``async with FakeOpenAI() as server``; pass ``server.base_url`` to the SDK.
    """

    def __init__(
        self,
        *,
        api_key: str = "sk-test-0123456789abcdef",
        refused: Mapping[str, str] | None = None,
        port: int = 0,
    ) -> None:
        """Configure the server.

        Args:
            api_key: The only accepted key; a wrong one is quoted in the error, as vendors do.
            refused: Unsupported parameters of the model: name -> the vendor's text.
            port: Port to listen on; 0 for any free one.
        """
        self.api_key = api_key
        self._always_refused = dict(refused or {})
        self.refused = dict(self._always_refused)
        self._port = port
        self.requests: list[RecordedRequest] = []
        """Every generation request, rejected ones included, in order."""
        self.unscripted: Behaviour | Callable[[Any], Behaviour] = Reply()
        """Reply after the end of the script; a function computes it from the request's body."""
        self._script: deque[Behaviour] = deque()
        self._connections: dict[object, int] = {}
        self._runner: web.AppRunner | None = None
        self._origin = ""

    def script(self, *behaviours: Behaviour) -> None:
        """Script the replies to the next requests; plain replies follow."""
        self._script.extend(behaviours)

    def reset(self) -> None:
        """Return to the state after the start, between tests of one server."""
        self.requests.clear()
        self._script.clear()
        self.refused = dict(self._always_refused)
        self.unscripted = Reply()

    @property
    def base_url(self) -> str:
        """Address to give to the SDK."""
        return self._origin + self.base_path

    @property
    def bodies(self) -> list[Any]:
        """The JSON bodies of ``requests``."""
        return [request.body for request in self.requests]

    async def __aenter__(self) -> Self:
        app = web.Application()
        for path in self.generation_paths:
            app.router.add_post(path, self._generate)
        for path in self.models_paths:
            app.router.add_get(path, self._models)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._origin = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
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

    base_path: str
    """Path of ``base_url``."""
    generation_paths: tuple[str, ...]
    models_paths: tuple[str, ...] = ("/v1/models",)
    stream_type = "text/event-stream"
    ping: bytes
    """Event that a stalled stream repeats."""

    @abstractmethod
    def check(self, request: web.Request, body: Any) -> None:
        """Raise ``ValueError`` if the real API would reject the request."""

    @abstractmethod
    def answer(self, reply: Reply, body: Any) -> Mapping[str, Any]:
        """Body of a whole answer."""

    @abstractmethod
    def before_texts(self, reply: Reply, body: Any) -> Iterator[bytes]:
        """Events before the first text."""

    @abstractmethod
    def text_event(self, text: str, reply: Reply, body: Any) -> bytes:
        """Event of one text."""

    @abstractmethod
    def after_texts(self, reply: Reply, body: Any) -> Iterator[bytes]:
        """Events after the last text; the last of them ends the stream."""

    @abstractmethod
    def error_event(self) -> bytes:
        """An error inside a stream."""

    @abstractmethod
    def error_body(
        self, status: int, message: str, param: str | None = None, code: str | None = None
    ) -> Mapping[str, Any]:
        """Body of an error."""

    @abstractmethod
    def overflow(self, prompt: int, completion: int, limit: int) -> Refusal:
        """Return the vendor's error for a request longer than the model's context, in tokens."""

    def longest_answer(self, body: Any) -> int:
        """Return the maximum tokens of the answer to a request."""
        return int(body.get("max_tokens") or body.get("max_completion_tokens") or 0)

    def count_tokens(self, body: Any) -> int:
        """Count the tokens of a prompt: three characters each, of all that the model reads."""
        read = [body.get(name) for name in ("messages", "system", "prompt")]
        return len(json.dumps(read, ensure_ascii=False)) // 3

    @abstractmethod
    def models_body(self, path: str) -> Mapping[str, Any]:
        """Body of the list of models at one of ``models_paths``."""

    def sampling(self, body: Any) -> Mapping[str, Any]:
        """Return the object with a request's sampling parameters."""
        found: Mapping[str, Any] = body
        return found

    def wants_stream(self, path: str, body: Any) -> bool:
        """Return whether a request is for a stream."""
        return bool(body.get("stream"))

    def error_headers(self, status: int) -> Mapping[str, str]:
        """Headers that the vendor's errors have."""
        return {}

    def accepts(self, request: web.Request, data: bytes) -> bool:
        """Return whether a request with this body has the right key."""
        return request.headers.get("Authorization") == f"Bearer {self.api_key}"

    async def _models(self, request: web.Request) -> web.StreamResponse:
        if not self.accepts(request, await request.read()):
            return self._wrong_key(request)
        return web.json_response(self.models_body(request.path))

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        data, body = await request.read(), await request.json()
        connection = self._connections.setdefault(request.transport, len(self._connections))
        recorded = RecordedRequest(request.path, dict(request.headers), body, connection)
        self.requests.append(recorded)
        if not self.accepts(request, data):
            return self._wrong_key(request)
        if (refusal := self._refusal(request, body)) is not None:
            return refusal
        behaviour = self._script.popleft() if self._script else self.unscripted
        behaviour = behaviour(body) if callable(behaviour) else behaviour
        try:
            if isinstance(behaviour, SmallContext):
                if (refusal := self._overflow(behaviour, body)) is not None:
                    return refusal
                behaviour = behaviour.reply
            if isinstance(behaviour, Failure):
                return self._failure(behaviour)
            if self.wants_stream(request.path, body):
                return await self._stream(request, behaviour, body)
            return await self._whole(request, behaviour, body)
        except (asyncio.CancelledError, ConnectionError):
            recorded.client_closed.set()
            raise

    def _wrong_key(self, request: web.Request) -> web.Response:
        sent = request.headers.get("Authorization", "")
        return self._error(401, f"Incorrect API key provided: {sent.removeprefix('Bearer ')}.")

    def _overflow(self, context: SmallContext, body: Any) -> web.Response | None:
        prompt, completion = self.count_tokens(body), self.longest_answer(body)
        if prompt + completion <= context.tokens:
            return None
        error = self.overflow(prompt, completion, context.tokens)
        return self._error(400, error.message, error.param, error.code)

    def _error(
        self, status: int, message: str, param: str | None = None, code: str | None = None, **headers: str
    ) -> web.Response:
        body = self.error_body(status, message, param, code)
        return web.json_response(body, status=status, headers={**self.error_headers(status), **headers})

    def _refusal(self, request: web.Request, body: Any) -> web.Response | None:
        for name, message in self.refused.items():
            if name in self.sampling(body):
                return self._error(400, message, name)
        try:
            self.check(request, body)
        except ValueError as exc:
            return self._error(400, f"Invalid request: {exc}")
        return None

    def _failure(self, failure: Failure) -> web.Response:
        headers = {} if failure.retry_after is None else {"retry-after": failure.retry_after}
        return self._error(failure.status, failure.message, **headers)

    async def _whole(self, request: web.Request, reply: Reply, body: Any) -> web.StreamResponse:
        await asyncio.sleep(reply.pause_s)
        if reply.ending == "stall":
            await asyncio.Event().wait()
        if reply.ending != "cut":
            return web.json_response(self.answer(reply, body))
        data = json.dumps(self.answer(reply, body)).encode()
        response = web.StreamResponse(headers={"content-type": "application/json"})
        response.content_length = len(data)
        await response.prepare(request)
        await response.write(data[: len(data) // 2])
        return await self._abort(request, response)

    async def _stream(self, request: web.Request, reply: Reply, body: Any) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": self.stream_type})
        await response.prepare(request)
        for event in self.before_texts(reply, body):
            await response.write(event)
        for number, text in enumerate(reply.texts):
            await asyncio.sleep(reply.pause_s)
            await _pass_gate(reply, number)
            await response.write(self.text_event(text, reply, body))
        await _pass_gate(reply, len(reply.texts))
        match reply.ending:
            case "complete":
                for event in self.after_texts(reply, body):
                    await response.write(event)
            case "error":
                await response.write(self.error_event())
            case "stall":
                while True:
                    await response.write(self.ping)
                    await asyncio.sleep(0.02)
            case "cut":
                await response.write(self.text_event("never arrives whole", reply, body)[:30])
                return await self._abort(request, response)
            case "eof":
                pass
        await response.write_eof()
        return response

    async def _abort(self, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        await asyncio.sleep(0.02)  # written data is sent first
        if request.transport is not None:
            request.transport.abort()
        return response


async def _pass_gate(reply: Reply, number: int) -> None:
    if reply.gate is not None:
        await reply.gate(number)


def sse(data: Mapping[str, Any] | str, event: str | None = None) -> bytes:
    """A server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {event}\n" if event else "").encode() + f"data: {text}\n\n".encode()
