"""Routes that questions come in by, without what FastAPI does for every kind of route.

For each request FastAPI solves dependencies, checks the body against the model, checks the answer against its
own, and parses the media type as an e-mail header: about 0.4 ms, a fifth of what a question takes in all.
Here a good request goes straight to its handler. Any other goes FastAPI's way, so its errors are FastAPI's.
Where a path has no parameters, it does not even pass FastAPI's router and the layers around it (``serve``).
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
    """A route whose handler takes ``request``, ``body``, ``application``, ``tenant`` and what is in its path.

    The body is a model that is read from JSON; what is returned is a model or a response. The route may have
    no dependencies beside these, for they would not be asked. A request with an ``Idempotency-Key`` is
    answered once (``vectorforge.api.idempotency``), except for a dry run.
    """

    async def serve(self, scope: Scope, receive: Receive, send: Send, by_fastapi: ASGIApp) -> None:
        """Answer a POST to this route, whose path has no parameters.

        Args:
            scope: Of the request; its credential has been checked.
            receive: As in ASGI.
            send: As in ASGI.
            by_fastapi: Answers a request that is not a good one; gets it as if it had not been read.

        Raises:
            VectorForgeError: What the handler raised; ``middleware.RequestContext`` answers it.
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
        question = self._question(request, body)
        if question is None:
            await by_fastapi(scope, _unread(body, receive), send)
            return
        response = await self._answer(request, body, question, {})
        await response(scope, receive, send)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The function that answers a request.

        Raises:
            TypeError: The handler takes something else.
        """
        by_fastapi = super().get_route_handler()
        names = inspect.signature(self.endpoint).parameters.keys()
        in_path = names - _OWN_PARAMETERS
        if self.dependencies or not in_path <= self.param_convertors.keys():
            raise TypeError(f"{self.path} takes more than a question, its caller and what is in its path")
        hints = get_type_hints(self.endpoint, include_extras=True)
        readers = {name: _reader(hints[name]) for name in in_path}
        self._model: type[BaseModel] = hints["body"]

        async def handle(request: Request) -> Response:
            try:
                values = {name: read(request.path_params[name]) for name, read in readers.items()}
            except ValueError:
                return await by_fastapi(request)
            body = await request.body()
            question = self._question(request, body)
            if question is None:
                return await by_fastapi(request)
            return await self._answer(request, body, question, values)

        return handle

    def _question(self, request: Request, body: bytes) -> BaseModel | None:
        """The body; None when it is not certainly JSON, or not as the model says."""
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
        self, request: Request, body: bytes, question: BaseModel, values: Mapping[str, Any]
    ) -> Response:
        if _IDEMPOTENCY_KEY not in request.headers:
            return await self._ask(request, question, values)
        if getattr(question, "dry_run", False):  # costs nothing, so it is not stored
            from vectorforge.api.streaming.idempotency import key_of

            key_of(request.headers)
            return await self._ask(request, question, values)
        from vectorforge.api.streaming.idempotency import IdempotentResponse

        return IdempotentResponse(request, body, lambda asked: self._ask(asked, question, values))

    async def _ask(self, request: Request, question: BaseModel, values: Mapping[str, Any]) -> Response:
        found = await self.endpoint(
            request=request,
            body=question,
            application=application_of(request),
            tenant=tenant_services_of(request),
            **values,
        )
        if isinstance(found, Response):
            return found
        return Response(found.model_dump_json(by_alias=True), media_type="application/json")


def _reader(hint: Any) -> Callable[[str], Any]:
    """What makes a parameter's value of its text in a path; raises ValueError."""
    return UUID if hint is UUID else TypeAdapter(hint).validate_strings


async def _body(receive: Receive) -> bytes:
    """The whole body; what ``Request.body`` takes a generator for."""
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
    """``receive`` of a request whose body is still to come."""
    is_read = False

    async def receive_again() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again
