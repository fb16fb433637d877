"""Tools with which an agent reads documents itself: list collections and documents, read, and find a text."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from pydantic import BaseModel

from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.document_repo import Document, DocumentRepository
from vectorforge.db.repositories.query_lookup_repo import as_uuid
from vectorforge.deadline import off_event_loop
from vectorforge.errors import InvalidInputError, NotFoundError
from vectorforge.tools.document_schemas import (
    DOCUMENT_TOOLS,
    CollectionsResult,
    DocumentsResult,
    FindArguments,
    FindResult,
    FoundText,
    ListCollectionsArguments,
    ListDocumentsArguments,
    ListedCollection,
    ListedDocument,
    ReadArguments,
    ReadResult,
)
from vectorforge.tools.schemas import check_arguments
from vectorforge.types import Collection, location_text
from vectorforge.vectorstore.filters.documents import condition_on_documents

if TYPE_CHECKING:
    from vectorforge.bootstrap import TenantServices

MAX_HEADINGS: Final = 50
"""Headings in a result or a message."""
_AROUND_CHARS: Final = 120
"""Characters of an excerpt on each side of a text that was found."""
_PART_CHARS: Final = 500_000
"""Characters of a document that are searched at a time."""
_OVERLAP_CHARS: Final = 10_000
"""Characters after a part that are read with it, for a text that begins in the part, and its excerpt."""


@dataclass(frozen=True, slots=True)
class DocumentTools:
    """The tools of one tenant.

    Args:
        collections: Bound to the tenant, as the next one.
        documents: Documents and parts of their texts.
        find_collection: Returns a collection by name or id, None for the default one.
    """

    collections: CollectionRepository
    documents: DocumentRepository
    find_collection: Callable[[str | None], Awaitable[Collection]]

    @classmethod
    def of(cls, tenant: "TenantServices", default_collection: str) -> Self:
        """Return the tools of a tenant; calls without a collection mean the default one, by name or id."""

        async def find_collection(name: str | None) -> Collection:
            return await tenant.find_collection(name or default_collection)

        return cls(tenant.collections, tenant.documents, find_collection)

    async def call(self, name: str, arguments: str | Mapping[str, Any]) -> str:
        """Run a call that a model made of ``openai_tools(DOCUMENT_TOOLS)`` and the like; return JSON for it.

        Args:
            name: Name of the tool.
            arguments: A JSON text, as OpenAI sends it, or an object, as Anthropic does.

        Raises:
            InvalidInputError: Unknown tool or invalid arguments. The message may be returned to the model,
                which can then correct the call.
            VectorForgeError: As the tool.
        """
        checked = check_arguments(name, arguments, DOCUMENT_TOOLS)
        return (await RUNS[name](self, checked)).model_dump_json()

    async def list_collections(self, arguments: ListCollectionsArguments) -> CollectionsResult:
        """Return a page of the collections, by name."""
        every = await self.collections.list()
        page = every[arguments.offset : arguments.offset + arguments.limit]
        return CollectionsResult(
            collections=[ListedCollection.model_validate(its) for its in page], total=len(every)
        )

    async def list_documents(self, arguments: ListDocumentsArguments) -> DocumentsResult:
        """Return a page of a collection's documents, the latest change first.

        Raises:
            NotFoundError: The collection does not exist.
            FilterError: The filter cannot be understood.
        """
        condition = condition_on_documents(arguments.filters)
        collection = await self.find_collection(arguments.collection)
        documents, total = await self.documents.list(
            collection.id, limit=arguments.limit, offset=arguments.offset, condition=condition
        )
        listed = [ListedDocument.model_validate(document) for document in documents]
        return DocumentsResult(collection=collection.name, documents=listed, total=total)

    async def read_document(self, arguments: ReadArguments) -> ReadResult:
        """Return a part of a document's text: from a character, or a page's or a section's.

        Raises:
            NotFoundError: The document does not exist, or has no such page or heading.
            InvalidInputError: Both a page and a heading were requested.
        """
        document = await self.find_document(arguments.document, arguments.collection)
        begin, end = await self._range(document, arguments)
        start = min(begin + arguments.start, end)
        length = min(arguments.max_chars, end - start)
        text = await self.documents.part(document.id, start, length)
        if text is None:
            raise _unknown(arguments.document)
        stop = start + len(text)
        is_outlined = start == 0 and arguments.page is None and arguments.heading is None
        return ReadResult(
            document_id=document.id,
            source=document.source,
            title=document.title,
            text=text,
            start=start,
            end=stop,
            size_chars=document.size_chars,
            next_start=stop - begin if stop < end else None,
            headings=[*await self.documents.headings(document.id, MAX_HEADINGS)] if is_outlined else [],
        )

    async def find_in_document(self, arguments: FindArguments) -> FindResult:
        """Return the places of a document where a text stands, in order.

        Raises:
            NotFoundError: The document does not exist.
        """
        words = arguments.text.split()
        if not words:
            raise InvalidInputError("text must not be blank.", field="text")
        document = await self.find_document(arguments.document, arguments.collection)
        wanted = re.compile(r"\s+".join(map(re.escape, words)), re.IGNORECASE)
        shown, total = await self._occurrences(document, wanted, arguments.limit)
        places = await self.documents.places(document.id, [found["start"] for found in shown])
        return FindResult(
            document_id=document.id,
            source=document.source,
            title=document.title,
            matches=[
                FoundText(**found, heading=place.heading, location=location_text(place.locations))
                for found, place in zip(shown, places, strict=True)
            ],
            total=total,
        )

    async def _occurrences(
        self, document: Document, wanted: re.Pattern[str], limit: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Return start, end and excerpt of the first occurrences, and the number of all."""
        shown: list[dict[str, Any]] = []
        total = after = 0
        for first in range(0, document.size_chars, _PART_CHARS):
            begin = max(first - _AROUND_CHARS, 0)
            length = first - begin + _PART_CHARS + _OVERLAP_CHARS
            text = await self.documents.part(document.id, begin, length)
            if text is None:
                raise _unknown(document.source)
            search = partial(list[re.Match[str]], wanted.finditer(text, max(first, after) - begin))
            for start, end in (match.span() for match in await off_event_loop(len(text), search)):
                if begin + start >= first + _PART_CHARS:
                    break  # the next part has it, whole
                total, after = total + 1, begin + end
                if len(shown) < limit:
                    excerpt = text[max(start - _AROUND_CHARS, 0) : end + _AROUND_CHARS]
                    shown.append({"start": begin + start, "end": after, "excerpt": excerpt})
        return shown, total

    async def find_document(self, name_or_id: str, collection: str | None) -> Document:
        """Return a document by id, or else by its source in the collection.

        Raises:
            NotFoundError: It does not exist, or the collection does not.
        """
        found = None
        if (as_id := as_uuid(name_or_id)) is not None:
            found = await self.documents.find_by_id(as_id)
        if found is None:
            its = await self.find_collection(collection)
            found = await self.documents.find_by_source(its.id, name_or_id)
        if found is None:
            raise _unknown(name_or_id)
        return found

    async def _range(self, document: Document, arguments: ReadArguments) -> tuple[int, int]:
        if arguments.page is not None and arguments.heading is not None:
            raise InvalidInputError("Give page or heading, not both.", field="heading")
        if arguments.page is not None:
            found = await self.documents.page(document.id, arguments.page)
            if found is None:
                raise NotFoundError(f"The document has no page {arguments.page}, or its pages are unknown.")
            return found
        if arguments.heading is not None:
            found = await self.documents.section(document.id, arguments.heading)
            if found is None:
                headings = await self.documents.headings(document.id, MAX_HEADINGS)
                known = f"these: {'; '.join(headings)}" if headings else "none"
                raise NotFoundError(f"No heading contains these words; the document has {known}.")
            return found
        return 0, document.size_chars


def _unknown(name_or_id: str) -> NotFoundError:
    return NotFoundError(
        f"There is no document {name_or_id[:200]!r}; list_documents lists the documents of a collection."
    )


Run = Callable[[DocumentTools, Any], Awaitable[BaseModel]]
RUNS: Final[Mapping[str, Run]] = {
    "list_collections": DocumentTools.list_collections,
    "list_documents": DocumentTools.list_documents,
    "read_document": DocumentTools.read_document,
    "find_in_document": DocumentTools.find_in_document,
}
"""The method of each tool, by its name."""
