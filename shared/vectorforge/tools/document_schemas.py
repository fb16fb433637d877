"""Arguments and results of the document tools as models."""

import json
from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias, TypeVar
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from vectorforge.pipeline.step_types import MAX_SUB_QUERY_CHARS
from vectorforge.pipeline.types import SearchTool
from vectorforge.tools.schemas import MAX_CONTEXT_CHARS, MAX_TOP_K, AgentTool, check_arguments

MAX_LISTED: Final = 100
"""Collections or documents of a page."""
MAX_FOUND: Final = 50
"""Places of a text in a result."""
READ_CHARS: Final = 6_000
"""Default characters of a part of a document: about 1,500 tokens."""
_MAX_NAME_CHARS: Final = 2_000

T = TypeVar("T")
# Null selects the default; the schema omits it, since some hosts cannot read a choice of types.
Optional: TypeAlias = T | SkipJsonSchema[None]


def _object_in_a_text(value: Any) -> Any:
    """Some hosts send objects as a text of JSON."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value  # rejected by the next check
    return value


ObjectInText: Final = BeforeValidator(_object_in_a_text)


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class SearchDocumentsArguments(_Arguments):
    """Arguments of ``search_documents``."""

    query: str = Field(
        min_length=1,
        max_length=MAX_SUB_QUERY_CHARS,
        description="What to look for, as a question or in the words of the answer; one fact at a time.",
    )
    top_k: int = Field(default=5, ge=1, le=MAX_TOP_K, description="How many passages to return at most.")


class _Page(_Arguments):
    limit: int = Field(default=20, ge=1, le=MAX_LISTED, description="How many to list at most.")
    offset: int = Field(default=0, ge=0, le=2**31 - 1, description="How many to skip.")


_Collection: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]
_COLLECTION = Field(default=None, description="Name or id of the collection. Left out: the default one.")


class ListCollectionsArguments(_Page):
    """Arguments of ``list_collections``."""


class ListDocumentsArguments(_Page):
    """Arguments of ``list_documents``."""

    collection: Optional[_Collection] = _COLLECTION
    filters: Optional[Annotated[dict[str, Any], ObjectInText]] = Field(
        default=None,
        description="Conditions on the documents' metadata, all of which must hold: a plain value means "
        "equality, an object may use $eq $ne $gt $gte $lt $lte $in $nin $exists $contains $and $or $not.",
    )


class _OfDocument(_Arguments):
    document: str = Field(
        min_length=1,
        max_length=_MAX_NAME_CHARS,
        description="Id of the document, or its source (path, address or key), as other tools return them.",
    )
    collection: Optional[_Collection] = _COLLECTION


class ReadArguments(_OfDocument):
    """Arguments of ``read_document``."""

    start: int = Field(
        default=0,
        ge=0,
        le=2**31 - 1,
        description="Character to begin at, counted from 0 at the beginning of the document, the page or "
        "the section. To read on, give the next_start of the last result.",
    )
    max_chars: int = Field(
        default=READ_CHARS, ge=100, le=MAX_CONTEXT_CHARS, description="Characters to read at most."
    )
    page: Optional[Annotated[int, Field(ge=1, le=2**31 - 1)]] = Field(
        default=None, description="Read this page of a PDF or slide of a presentation, from 1."
    )
    heading: Optional[Annotated[str, Field(min_length=1, max_length=500)]] = Field(
        default=None, description="Read the first section whose heading contains these words."
    )


class FindArguments(_OfDocument):
    """Arguments of ``find_in_document``."""

    text: str = Field(
        min_length=1,
        max_length=200,
        description="Words to find as they stand, in upper or lower case. To find by meaning, use "
        "semantic_search.",
    )
    limit: int = Field(default=10, ge=1, le=MAX_FOUND, description="Places to return at most.")


class ListedCollection(BaseModel):
    """A collection."""

    model_config = ConfigDict(from_attributes=True, validate_by_name=True)

    name: str
    id: UUID
    documents: int = Field(validation_alias="document_count")
    passages: int = Field(validation_alias="chunk_count")


class CollectionsResult(BaseModel):
    """Result of ``list_collections``."""

    collections: list[ListedCollection]
    total: int = Field(description="How many there are in all.")


class ListedDocument(BaseModel):
    """A document without its text."""

    model_config = ConfigDict(from_attributes=True, validate_by_name=True)

    document_id: UUID = Field(validation_alias="id")
    source: str = Field(description="Path, address or key of the document.")
    title: str | None
    media_type: str
    size_chars: int = Field(description="Characters of its text.")
    updated_at: datetime | None
    metadata: dict[str, Any] = Field(description="What filters look at.")


class DocumentsResult(BaseModel):
    """Result of ``list_documents``."""

    collection: str = Field(description="Name of the collection.")
    documents: list[ListedDocument] = Field(description="The latest change first.")
    total: int = Field(description="How many match in all.")


class ReadResult(BaseModel):
    """Result of ``read_document``."""

    document_id: UUID
    source: str
    title: str | None
    text: str
    start: int = Field(description="Where the text begins in the document, in characters from 0.")
    end: int
    size_chars: int = Field(description="Characters of the whole document.")
    next_start: int | None = Field(
        description="The start to read on with, in the same page or section; null at its end."
    )
    headings: list[str] = Field(
        description="The first headings of the document, when it is read from its beginning; each with "
        "those above it."
    )


class FoundText(BaseModel):
    """A place of a text."""

    start: int = Field(description="In the document, in characters from 0.")
    end: int
    excerpt: str
    heading: str | None = Field(description="Headings above it, outermost first.")
    location: str = Field(description="Such as `p. 12`; empty if unknown.")


class FindResult(BaseModel):
    """Result of ``find_in_document``."""

    document_id: UUID
    source: str
    title: str | None
    matches: list[FoundText] = Field(description="In the order of the document.")
    total: int = Field(description="How often the text stands in the document.")


DOCUMENT_TOOLS: Final = {
    tool.name: tool
    for tool in (
        AgentTool(
            "list_collections",
            "Lists the collections of the user's documents, by name, with their numbers of documents. Use "
            "it to see where to search.",
            ListCollectionsArguments,
        ),
        AgentTool(
            "list_documents",
            "Lists the documents of a collection with their ids, sources, titles, sizes and metadata, the "
            "latest change first. Use it to see what there is, or to find a document by its metadata.",
            ListDocumentsArguments,
        ),
        AgentTool(
            "read_document",
            "Reads a part of one document: from a character on, one page, or the section under a heading. "
            "Use it after a search, to see what stands around a passage, or to read a short document whole.",
            ReadArguments,
        ),
        AgentTool(
            "find_in_document",
            "Finds every place of one document where given words stand exactly, with what stands around "
            "them. Use it for names, numbers and terms; semantic_search finds by meaning.",
            FindArguments,
        ),
    )
}
"""The document tools by name."""

_SEARCH_DOCUMENTS: Final = AgentTool(
    "search_documents",
    "Searches the user's documents by meaning and by words. Returns the best passages, each under a label "
    "such as [Source 1] by which it is cited.",
    SearchDocumentsArguments,
)


def _read_search(arguments: str) -> tuple[str, int]:
    name = _SEARCH_DOCUMENTS.name
    checked = check_arguments(name, arguments, {name: _SEARCH_DOCUMENTS})
    assert isinstance(checked, SearchDocumentsArguments)  # noqa: S101 - the only tool
    return checked.query, checked.top_k


SEARCH_TOOL: Final = SearchTool(_SEARCH_DOCUMENTS.definition, _read_search)
"""``search_documents`` for a query whose search the model decides on."""
