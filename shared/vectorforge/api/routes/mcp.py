"""``/mcp``: tools for agents, over the Model Context Protocol."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from vectorforge.api.dependencies import find_tenant_services
from vectorforge.api.responses import problems

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
            "description": "The message's answer. A tool that fails says so in its result (`isError`).",
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
    There are no sessions, so GET and DELETE are refused with 405.
    """
    # The package is imported with the first request, beside the loop: others are being answered.
    answer_message = await asyncio.to_thread(_load)
    return await answer_message(request)


def _load() -> Callable[[Request], Awaitable[Response]]:
    from vectorforge.api.mcp.http import answer_message

    return answer_message
