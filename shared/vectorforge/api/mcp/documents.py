"""The tools of ``vectorforge.tools.documents`` as MCP tools."""

from typing import Any, Final

from pydantic import BaseModel

from vectorforge.api.mcp.caller import Answered, Caller, ToolDefinition
from vectorforge.api.querying import query_time_limit
from vectorforge.pipeline.citations.labels import neutralise_labels
from vectorforge.tools.document_schemas import (
    DOCUMENT_TOOLS,
    CollectionsResult,
    DocumentsResult,
    FindResult,
    ReadResult,
)
from vectorforge.tools.documents import RUNS, DocumentTools

_TITLES: Final[dict[str, tuple[str, type[BaseModel]]]] = {
    "list_collections": ("List collections", CollectionsResult),
    "list_documents": ("List documents", DocumentsResult),
    "read_document": ("Read a document", ReadResult),
    "find_in_document": ("Find in a document", FindResult),
}


def document_tools(caller: Caller) -> DocumentTools:
    """Return the document tools of the caller's tenant."""
    tenant = caller.tenant
    return DocumentTools(tenant.collections, tenant.documents, tenant.document_reading, caller.collection)


def _definition(name: str) -> ToolDefinition[Any]:
    async def run(caller: Caller, requested: BaseModel) -> Answered:
        async with query_time_limit(caller.application, caller.deadline):
            await caller.tenant.limits.admit()
            result = await RUNS[name](document_tools(caller), requested)
        return Answered(result, _text(result))

    tool, (title, result) = DOCUMENT_TOOLS[name], _TITLES[name]
    return ToolDefinition(name, title, tool.description, tool.arguments, result, run)


DOCUMENT_DEFINITIONS: Final = tuple(map(_definition, DOCUMENT_TOOLS))
"""In the order in which they are listed."""


def _text(result: BaseModel) -> str:
    match result:
        case CollectionsResult(collections=collections, total=total):
            lines = [f"{its.name}: {its.documents} documents, {its.passages} passages" for its in collections]
            return "\n".join([*lines, _rest(len(lines), total)]).strip()
        case DocumentsResult(documents=documents, total=total):
            lines = [f"{_name(its)} ({its.size_chars} characters, id {its.document_id})" for its in documents]
            return "\n".join([*lines, _rest(len(lines), total)]).strip()
        case ReadResult():
            return _read(result)
        case FindResult(matches=matches, total=total):
            lines = [
                f"{' › '.join(filter(None, [its.heading, its.location])) or result.source}, "
                f"characters {its.start} to {its.end}:\n{neutralise_labels(its.excerpt)}"
                for its in matches
            ]
            return "\n\n".join([*lines, _rest(len(lines), total)]).strip()
        case _:
            raise TypeError(type(result).__name__)


def _read(result: ReadResult) -> str:
    part = f"characters {result.start} to {result.end} of {result.size_chars}"
    parts = [f"{_name(result)}, {part}", neutralise_labels(result.text)]
    if result.next_start is not None:
        parts.append(f"(Read on with start={result.next_start}.)")
    return "\n\n".join(parts)


def _name(document: Any) -> str:
    return neutralise_labels(" › ".join(filter(None, [document.source, document.title])))


def _rest(shown: int, total: int) -> str:
    if not total:
        return "None."
    return f"({total} in all.)" if total > shown else ""
