"""``/mcp``: the tools over streamable HTTP without sessions; each POST gets one JSON document.

Protocol 2026-07-28, and 2025-11-25 and its predecessors with their handshake
(https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http). No state remains
between requests, so any process and any Lambda function can serve any of them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from vectorforge.api.dependencies import find_tenant_services
from vectorforge.api.mcp.server import make_server
from vectorforge.api.mcp.tools import Caller
from vectorforge.api.schemas import problems
from vectorforge.api.streaming.client_stream import cancelled_on_disconnect

MAX_MESSAGE_BYTES = 1024 * 1024
"""Largest message: the longest query and filters, escaped, and margin for additions of clients."""

# The package logs "manager started" for every request.
logging.getLogger("mcp").setLevel(logging.WARNING)


async def answer_message(request: Request) -> Response:
    """Answer one message; its body must not have been read.

    The package's session manager serves this one request and ends with it, so that nothing outlives a request
    that Lambda would freeze, and a disconnect ends the request's work.

    Raises:
        HTTPException: The body is too large (413), or its type is not JSON (415).
        ClientDisconnect: The client went away, and the tool's work was canceled.
    """
    if not request.headers.get("content-type", "").lower().startswith("application/json"):
        raise HTTPException(415, "Content-Type must be application/json.")  # the package names no type
    body = await request.body()
    if len(body) > MAX_MESSAGE_BYTES:
        raise HTTPException(413, f"The message is larger than {MAX_MESSAGE_BYTES} bytes.")
    manager = StreamableHTTPSessionManager(
        _server(),
        json_response=True,
        stateless=True,
        # middleware.LocalGuard has looked at Host and Origin
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        max_request_body_size=MAX_MESSAGE_BYTES,
    )
    collected = _CollectedResponse()
    async with cancelled_on_disconnect(request.receive), manager.run():
        await manager.handle_request(request.scope, _receive_once(body), collected.send)
    return collected.response()


@cache
def _server() -> Server[Any]:
    return make_server(Caller.of_request)


def _receive_once(body: bytes) -> Receive:
    """Return a ``receive`` for a body that is read already; disconnects are detected elsewhere."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        raise AssertionError("never set")

    return receive


class _CollectedResponse:
    """Messages of an ASGI app, collected into a response."""

    def __init__(self) -> None:
        self._start: Message = {}
        self._body = bytearray()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        else:
            self._body += message.get("body", b"")

    def response(self) -> Response:
        response = Response(bytes(self._body), self._start["status"])
        response.raw_headers = [*self._start["headers"]]
        return response


router = APIRouter(tags=["agents"])

_MESSAGE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["string", "integer"], "description": "Absent in notifications."},
        "method": {"type": "string", "examples": ["tools/list", "tools/call"]},
        "params": {"type": "object"},
    },
    "required": ["jsonrpc", "method"],
}


@router.post("/mcp/", include_in_schema=False)
@router.post(
    "/mcp",
    response_class=Response,
    dependencies=[Depends(find_tenant_services)],
    responses={
        200: {
            "description": "The response to the message. A failed tool call has `isError` in its result.",
            "content": {"application/json": {"schema": {"type": "object"}}},
        },
        202: {"description": "It was a notification."},
        **problems(413, 415),
        400: {
            "description": "It is no JSON-RPC message; the body is a JSON-RPC error.",
            "content": {"application/json": {"schema": {"type": "object"}}},
        },
        406: {
            "description": "`Accept` names other types than JSON; the body is a JSON-RPC error.",
            "content": {"application/json": {"schema": {"type": "object"}}},
        },
    },
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": _MESSAGE}}}},
)
async def mcp(request: Request) -> Response:
    """Call tools over the Model Context Protocol: streamable HTTP, one message and one JSON answer a request.

    The tools are `semantic_search`, `semantic_search_with_context` and `ask`; `tools/list` describes them.
    There are no sessions, so GET and DELETE return 405.
    """
    # Import the package in a thread, since the loop serves other requests.
    answer_message = await asyncio.to_thread(_load)
    return await answer_message(request)


def _load() -> Callable[[Request], Awaitable[Response]]:

    return answer_message
