"""Routes of queries, without FastAPI's general processing.

For each request FastAPI resolves dependencies, validates body and response, and parses the media type as an
e-mail header: about 0.4 ms, a fifth of a query's time. Here a valid request is passed straight to its
handler; FastAPI handles any other, so that the errors are FastAPI's. Requests to a path without parameters
bypass FastAPI's router too (``serve``).
"""

import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, get_type_hints
from uuid import UUID

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vectorforge.api.dependencies import application_of, tenant_services_of
from vectorforge.api.problems import http_problem
from vectorforge.api.request_state import RequestState

_OWN_PARAMETERS = frozenset({"request", "body", "application", "tenant"})
_IDEMPOTENCY_KEY = "idempotency-key"


class QueryRoute(APIRoute):
    """Route whose handler accepts ``request``, ``body``, ``application``, ``tenant`` and path parameters.

    The body is a model in JSON; the handler returns a model or a response. The route must not have other
    dependencies: they would not be resolved. A request with an ``Idempotency-Key`` is answered once
    (``vectorforge.api.streaming.idempotency``), except for a dry run.
    """

    async def serve(self, scope: Scope, receive: Receive, send: Send, by_fastapi: ASGIApp) -> None:
        """Answer a POST to this route, whose path has no parameters.

        Args:
            scope: Scope of the request; its credential has been checked.
            receive: As in ASGI.
            send: As in ASGI.
            by_fastapi: Answers an invalid request, which it receives unread.

        Raises:
            VectorForgeError: Raised by the handler; ``middleware.RequestContext`` answers it.
        """
        scope["route"] = self  # for the metrics
        request = Request(scope, receive)
        try:
            body = await _body(receive)
        except HTTPException as exc:  # of ``middleware.BodyLimit``
            state = RequestState.of(scope)
            problem = http_problem(exc.status_code, exc.detail, state=state, headers=exc.headers)
            await problem(scope, receive, send)
            return
        query = self._parse(request, body)
        if query is None:
            await by_fastapi(scope, _unread(body, receive), send)
            return
        response = await self._answer(request, body, query, {})
        await response(scope, receive, send)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that answers a request.

        Raises:
            TypeError: The handler has other parameters.
        """
        by_fastapi = super().get_route_handler()
        names = inspect.signature(self.endpoint).parameters.keys()
        in_path = names - _OWN_PARAMETERS
        if self.dependencies or not in_path <= self.param_convertors.keys():
            raise TypeError(f"{self.path} has parameters other than body, caller and path parameters")
        hints = get_type_hints(self.endpoint, include_extras=True)
        readers = {name: _reader(hints[name]) for name in in_path}
        self._model: type[BaseModel] = hints["body"]

        async def handle(request: Request) -> Response:
            try:
                values = {name: read(request.path_params[name]) for name, read in readers.items()}
            except ValueError:
                return await by_fastapi(request)
            body = await request.body()
            query = self._parse(request, body)
            if query is None:
                return await by_fastapi(request)
            return await self._answer(request, body, query, values)

        return handle

    def _parse(self, request: Request, body: bytes) -> BaseModel | None:
        """Return the body; None if it is not JSON, or not valid for the model."""
        media_type = request.headers.get("content-type", "")
        if media_type != "application/json":
            media_type = media_type.partition(";")[0].strip().lower()
        if not body or media_type != "application/json":
            return None
        try:
            return self._model.model_validate(from_json(body))
        except (ValueError, RecursionError):
            return None

    async def _answer(
        self, request: Request, body: bytes, query: BaseModel, values: Mapping[str, Any]
    ) -> Response:
        if _IDEMPOTENCY_KEY not in request.headers:
            return await self._handle(request, query, values)
        if getattr(query, "dry_run", False):  # costs nothing, so it is not stored
            from vectorforge.api.streaming.idempotency import key_of

            key_of(request.headers)
            return await self._handle(request, query, values)
        from vectorforge.api.streaming.idempotency import IdempotentResponse

        return IdempotentResponse(request, body, lambda retried: self._handle(retried, query, values))

    async def _handle(self, request: Request, query: BaseModel, values: Mapping[str, Any]) -> Response:
        result = await self.endpoint(
            request=request,
            body=query,
            application=application_of(request),
            tenant=tenant_services_of(request),
            **values,
        )
        if isinstance(result, Response):
            return result
        return Response(result.model_dump_json(by_alias=True), media_type="application/json")


def _reader(hint: Any) -> Callable[[str], Any]:
    """Return the parser of a path parameter, which raises ValueError."""
    return UUID if hint is UUID else TypeAdapter(hint).validate_strings


async def _body(receive: Receive) -> bytes:
    """Return the whole body; ``Request.body`` needs a generator for it."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        return body
    parts = bytearray()
    while message["type"] == "http.request":
        parts += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(parts)
        message = await receive()
    raise ClientDisconnect


def _unread(body: bytes, receive: Receive) -> Receive:
    """Return the ``receive`` of a request whose body is unread."""
    is_read = False

    async def receive_again() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again
