"""Documents as MCP resources: listed, and read by their ids.

https://modelcontextprotocol.io/specification/2025-11-25/server/resources
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from vectorforge.api.mcp.caller import Caller, advice
from vectorforge.api.mcp.tools import document_tools
from vectorforge.api.problems import problem_of
from vectorforge.api.querying import query_time_limit
from vectorforge.errors import InvalidInputError, NotFoundError
from vectorforge.tools.document_schemas import MAX_LISTED, ListDocumentsArguments

MAX_RESOURCE_CHARS: Final = 200_000
"""Characters of a resource at most; ``read_document`` reads the rest."""
_PREFIX: Final = "vectorforge://documents/"
_TEXT: Final = "text/plain"
_RESOURCE_NOT_FOUND: Final = -32002
"""Retired by protocol 2026-07-28, which has INVALID_PARAMS instead."""

T = TypeVar("T")


class DocumentResources:
    """Handlers of ``resources/list``, ``resources/templates/list`` and ``resources/read``."""

    def __init__(self, find_caller: Callable[[Any], Caller]) -> None:
        self._find_caller = find_caller

    async def list(
        self, context: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        """List the documents of the default collection, the latest change first; a cursor is a number."""
        cursor = (params.cursor if params is not None else None) or "0"

        async def listed(caller: Caller) -> ListResourcesResult:
            if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
                raise InvalidInputError(
                    "Unknown cursor; give the nextCursor of the last page.", field="cursor"
                )
            offset = int(cursor)
            page = ListDocumentsArguments(limit=MAX_LISTED, offset=offset)
            found = await document_tools(caller).list_documents(page)
            following = offset + len(found.documents)
            return ListResourcesResult(
                resources=[
                    Resource(
                        uri=f"{_PREFIX}{its.document_id}",
                        name=its.source,
                        title=its.title or its.source,
                        mime_type=_TEXT,
                    )
                    for its in found.documents
                ],
                next_cursor=str(following) if following < found.total else None,
            )

        return await self._answered(context, listed)

    async def templates(
        self, _: ServerRequestContext[Any], __: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        """Return the pattern of the documents' URIs."""
        template = ResourceTemplate(
            uri_template=f"{_PREFIX}{{document_id}}",
            name="document",
            title="Document",
            description=f"Text of a document, up to {MAX_RESOURCE_CHARS} characters.",
            mime_type=_TEXT,
        )
        return ListResourceTemplatesResult(resource_templates=[template])

    async def read(
        self, context: ServerRequestContext[Any], params: ReadResourceRequestParams
    ) -> ReadResourceResult:
        """Return the beginning of a document's text."""

        async def text_of(caller: Caller) -> ReadResourceResult:
            if not params.uri.startswith(_PREFIX):
                raise NotFoundError(f"Unknown resource; URIs begin with {_PREFIX}.")
            tools = document_tools(caller)
            document = await tools.find_document(params.uri.removeprefix(_PREFIX), None)
            text = await tools.documents.part(document.id, 0, MAX_RESOURCE_CHARS)
            contents = TextResourceContents(uri=params.uri, mime_type=_TEXT, text=text or "")
            return ReadResourceResult(contents=[contents])

        return await self._answered(context, text_of)

    async def _answered(
        self, context: ServerRequestContext[Any], work: Callable[[Caller], Awaitable[T]]
    ) -> T:
        """Run the work as an admitted request; errors are JSON-RPC errors with problem documents."""
        caller = self._find_caller(context.request)
        try:
            async with query_time_limit(caller.application, caller.deadline):
                await caller.tenant.limits.admit()
                return await work(caller)
        except Exception as exc:
            problem = problem_of(exc, request_id=caller.request_id)
            code = _code_of(problem.status, context.protocol_version)
            data = problem.model_dump(mode="json", exclude_none=True)
            raise MCPError(code, advice(exc, caller), data) from exc


def _code_of(status: int, protocol_version: str) -> int:
    if status == 404 and protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
        return _RESOURCE_NOT_FOUND
    if status in (404, 422):
        return INVALID_PARAMS
    return INTERNAL_ERROR if status >= 500 else INVALID_REQUEST
