"""The tools and resources as a server of the official ``mcp`` package, over stdin and stdout and at ``/mcp``.

``/mcp`` is streamable HTTP without sessions; each POST gets one JSON document, or events if its call reports
progress. Protocol 2026-07-28, and 2025-11-25 and its predecessors with their handshake
(https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http). No state remains
between requests, so any process and any Lambda function can serve any of them.
"""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, cast

import anyio
from fastapi import APIRouter, Depends, Request, Response
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
    jsonrpc_message_adapter,
)
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import Message

from vectorforge import __version__
from vectorforge.api.dependencies import find_tenant_services, receive_once
from vectorforge.api.error_schemas import field_problem, problems
from vectorforge.api.mcp.caller import Answered, Caller, ToolDefinition, advice
from vectorforge.api.mcp.progress import CallResponse, Progress, may_report
from vectorforge.api.mcp.resources import DocumentResources
from vectorforge.api.mcp.tools import INSTRUCTIONS, TOOLS
from vectorforge.api.streaming.sse import nameless_events_content
from vectorforge.api.streaming.stream import cancelled_on_disconnect
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.errors import InvalidInputError
from vectorforge.tools.schemas import tool_schema

# The package logs "manager started" for every request.
logging.getLogger("mcp").setLevel(logging.WARNING)

MAX_MESSAGE_BYTES = 1024 * 1024
"""Largest message: the longest query and filters, escaped, and margin for additions of clients."""
_MAX_PLACES = 5


def make_server(find_caller: Callable[[Any], Caller]) -> Server[Any]:
    """Return a stateless server; the argument of ``find_caller`` is an HTTP request, or None elsewhere."""
    tools = [_describe(tool) for tool in TOOLS.values()]
    schemas = {tool.name: tool.input_schema for tool in tools}
    resources = DocumentResources(find_caller)

    async def list_tools(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        tool = TOOLS.get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool; available: {', '.join(TOOLS)}.")
        caller = replace(find_caller(context.request), progress=Progress.of_call(context))
        return await _undisturbed(_call(tool, caller, params.arguments or {}))

    return Server(
        "vectorforge",
        title="VectorForge",
        version=__version__,
        description="Search and ask your own documents.",
        instructions=INSTRUCTIONS,
        get_tool_input_schema=schemas.get,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=resources.list,
        on_list_resource_templates=resources.templates,
        on_read_resource=resources.read,
    )


def _describe(tool: ToolDefinition[Any]) -> Tool:
    return Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool_schema(tool.arguments.model_json_schema()),
        output_schema=tool_schema(tool.result.model_json_schema(mode="serialization")),
        annotations=ToolAnnotations(
            title=tool.title,
            read_only_hint=True,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=False,
        ),
    )


async def _call(tool: ToolDefinition[Any], caller: Caller, arguments: Mapping[str, Any]) -> CallToolResult:
    try:
        answered: Answered = await tool.run(caller, _checked(tool, arguments))
    except Exception as exc:  # noqa: BLE001 - a model can act on an error that is the tool's result
        return CallToolResult(content=[TextContent(text=advice(exc, caller))], is_error=True)
    return CallToolResult(
        content=[TextContent(text=answered.text)], structured_content=answered.result.model_dump(mode="json")
    )


def _checked(tool: ToolDefinition[Any], arguments: Mapping[str, Any]) -> BaseModel:
    try:
        checked: BaseModel = tool.arguments.model_validate(dict(arguments))
    except ValidationError as exc:
        # "or null" would be no useful advice
        found = [error for error in exc.errors() if error["type"] != "none_required"][:_MAX_PLACES]
        # of the location only the argument's name, since the rest has names of types
        fields = [field_problem({**its, "loc": its["loc"][:1]}, tool.arguments.model_fields) for its in found]
        lines = [f"Invalid arguments of {tool.name}; correct them and call again:"]
        lines += [f"{its.field}: {its.message}" for its in fields]
        raise InvalidInputError("\n".join(lines)) from exc
    return checked


async def _undisturbed(call: Coroutine[Any, Any, CallToolResult]) -> CallToolResult:
    """Await a call; on cancellation, cancel it once and wait for its end.

    The package's cancel scopes cancel repeatedly, and a canceled query still has to be logged.
    """
    task = asyncio.create_task(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task])
        raise


_STDIN = 0
_PIECE_BYTES = 64 * 1024


async def serve_stdio(application: Application, tenant: TenantServices) -> None:
    """Serve messages from stdin on stdout until stdin ends; other output goes to stderr."""
    server = make_server(lambda _: Caller.on_this_machine(application, tenant))
    lines = cast("anyio.AsyncFile[str]", _read_lines(_STDIN))  # it is only iterated over
    async with stdio_server(stdin=lines) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def _read_lines(file: int) -> AsyncIterator[str]:
    """Yield the lines of a file that another thread reads.

    The package's own thread cannot be interrupted: a signal would end the process only after the next line.
    """
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        piece = b"more"
        while piece:
            try:
                piece = os.read(file, _PIECE_BYTES)
            except OSError:
                piece = b""
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            except RuntimeError:  # the loop has been closed
                return

    threading.Thread(target=read, name="stdin", daemon=True).start()
    rest = b""
    while piece := await pieces.get():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")


@cache
def _server() -> Server[Any]:
    return make_server(Caller.of_request)


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
_JSON_RPC = {"application/json": {"schema": {"type": "object"}}}


@router.post("/mcp/", include_in_schema=False)
@router.post(
    "/mcp",
    response_class=Response,
    dependencies=[Depends(find_tenant_services)],
    responses={
        200: {
            "description": "The response to the message. A failed tool call has `isError` in its result.",
            "content": {
                **_JSON_RPC,
                **nameless_events_content("A JSON-RPC message: progress, then the response."),
            },
        },
        202: {"description": "It was a notification."},
        **{status: {**its, "content": _JSON_RPC} for status, its in problems(413, 415).items()},
        400: {
            "description": "It is no JSON-RPC message; the body is a JSON-RPC error.",
            "content": _JSON_RPC,
        },
        406: {
            "description": "`Accept` names other types than JSON; the body is a JSON-RPC error.",
            "content": _JSON_RPC,
        },
    },
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": _MESSAGE}}}},
)
async def mcp(request: Request) -> Response:
    """Call tools over the Model Context Protocol: streamable HTTP, one message and its answer a request.

    The answer is a JSON document, or with `_meta.progressToken` in a call of `ask` server-sent events.
    The tools search, answer, list and read documents: see `tools/list`. Documents are resources as well.
    There are no sessions, so GET and DELETE return 405.
    """
    if not request.headers.get("content-type", "").lower().startswith("application/json"):
        raise HTTPException(415, "Content-Type must be application/json.")  # the package names no type
    body = await request.body()
    if len(body) > MAX_MESSAGE_BYTES:
        raise HTTPException(413, f"The message is larger than {MAX_MESSAGE_BYTES} bytes.")
    if may_report(request.headers.get("accept", ""), body):
        return CallResponse(lambda: _answer(request, body))
    async with cancelled_on_disconnect(request.receive):
        response = await _answer(request, body)
    if response.status_code == 400 and not _is_message(body):  # the package names its own types
        raise HTTPException(400, "Send one JSON-RPC message; batches are not supported.")
    return response


def _is_message(body: bytes) -> bool:
    """Return False for JSON that is not one message; malformed JSON has its own error."""
    try:
        jsonrpc_message_adapter.validate_json(body, by_name=False)
    except ValidationError as exc:
        return exc.errors()[0]["type"] == "json_invalid"
    return True


async def _answer(request: Request, body: bytes) -> Response:
    # Serves this one request and ends with it: nothing outlives a request that Lambda would freeze.
    manager = StreamableHTTPSessionManager(
        _server(),
        json_response=True,
        stateless=True,
        # middleware.LocalGuard has looked at Host and Origin
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        max_request_body_size=MAX_MESSAGE_BYTES,
    )
    collected = _CollectedResponse()
    async with manager.run():
        await manager.handle_request(request.scope, receive_once(body), collected.send)
    return collected.response()
