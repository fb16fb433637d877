"""Requests of the HTTP API, described once for both clients; docs/openapi.json has their fields.

Options that are left out have the server's defaults.
"""

import json
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, NotRequired, TypeAlias, TypedDict, TypeVar, Unpack
from urllib.parse import quote
from uuid import UUID

from vectorforge.http_client.errors import JobNotFinishedError
from vectorforge.http_client.models import Answer, Model, SearchResults
from vectorforge.http_client.stored_models import (
    Collection,
    CollectionPage,
    Document,
    DocumentPage,
    Erasure,
    Feedback,
    Job,
)

ResultT = TypeVar("ResultT", bound=Model)
T = TypeVar("T")
Filters: TypeAlias = Mapping[str, Any]
SearchMode: TypeAlias = Literal["hybrid", "dense", "lexical"]

_FIRST_POLL_S, _SLOWEST_POLL_S = 0.1, 2.0


@dataclass(frozen=True)
class Call(Generic[ResultT]):
    """One request and the type of its result."""

    method: str
    path: str
    result: type[ResultT]
    body: Mapping[str, Any] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    form: Mapping[str, str] | None = None
    files: Sequence[tuple[str, tuple[str, bytes]]] | None = None
    idempotency_key: str | None = None
    repeatable: bool = True
    """True if a repetition has the effect of one request."""
    timeout_s: float | None = None
    """None: the client's."""


Steps: TypeAlias = Generator[Call[Any] | float, Any, T]
"""Several calls: yields a call, whose result it receives, or seconds to sleep."""


class ChatMessage(TypedDict):
    """An earlier message of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: str


class QueryOptions(TypedDict, total=False):
    """Options of a query; docs/use/http-api.md describes them."""

    k: int
    filters: Filters | None
    messages: Sequence[ChatMessage] | None
    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    include_context: bool | None
    collection: str | None
    profile_id: int | None
    search_mode: SearchMode | None
    mmr_lambda: float | None
    min_version: int | None
    provider: str | None
    model: str | None
    variant: str | None
    conversation_id: UUID | str | None
    rewrite: bool | Literal["auto"]
    effort: Literal["minimal", "low", "medium", "auto"]
    intents: Sequence[str]
    allow_ungrounded: bool


class SearchOptions(TypedDict, total=False):
    """Options of a search."""

    collection: str | None
    top_k: int
    filters: Filters | None
    profile_id: int | None
    search_mode: SearchMode | None
    mmr_lambda: float | None
    min_version: int | None
    min_score: float | None


class CollectionSettings(TypedDict, total=False):
    """Settings of a collection, new or existing."""

    search_mode: SearchMode | None
    dense_weight: float | None
    language: str | None
    keep_originals: bool
    contextual: bool
    ocr: bool


class CollectionChanges(CollectionSettings, total=False):
    """Changes of a collection."""

    name: str | None


class CollectionOptions(CollectionSettings, total=False):
    """Settings of a new collection."""

    description: str
    embedding_provider: str | None
    embedding_model: str | None
    dimension: int | None
    distance_metric: Literal["cosine", "inner_product", "l2"]
    query_prefix: str | None
    document_prefix: str | None
    vector_index: Literal["full", "half", "binary"]
    keeps_words: bool


class NewDocument(TypedDict):
    """A text to ingest; the same source again replaces it."""

    source: str
    text: str
    title: NotRequired[str | None]
    media_type: NotRequired[str]
    metadata: NotRequired[Mapping[str, Any]]


class FeedbackOptions(TypedDict, total=False):
    """Details of a rating."""

    reasons: Sequence[str]
    comment: str
    should_cite: Sequence[UUID | str]


def query(query: str, *, idempotency_key: str | None = None, **options: Unpack[QueryOptions]) -> Call[Answer]:
    """Answer a query with citations.

    Args:
        query: The query.
        idempotency_key: 1 to 255 visible ASCII characters; a repetition under the same key returns the same
            answer, from one generation. Default: a new UUID, which the client's own retries share.
        **options: As in ``QueryOptions``.
    """
    key = idempotency_key or str(uuid.uuid4())
    return Call("POST", "/v1/rag/query", Answer, {"query": query, **options}, idempotency_key=key)


def stream(
    query: str, *, idempotency_key: str | None = None, **options: Unpack[QueryOptions]
) -> Call[Answer]:
    """Stream the answer to a query as events; the last one is ``Done``. Arguments as for ``query``.

    Closing the iterator before its end stops the answer.
    """
    key = idempotency_key or str(uuid.uuid4())
    # resumable: an answer under a key is stopped by a request of its own
    body = {"query": query, **options, "stream": True, "resumable": True}
    return Call("POST", "/v1/rag/query", Answer, body, idempotency_key=key)


def search(query: str, **options: Unpack[SearchOptions]) -> Call[SearchResults]:
    """Return the chunks that match a query best, without an answer."""
    return Call("POST", "/v1/search", SearchResults, {"query": query, **options})


def create_collection(name: str, **options: Unpack[CollectionOptions]) -> Call[Collection]:
    """Create a collection; the name must be new."""
    return Call("POST", "/v1/collections", Collection, {"name": name, **options}, repeatable=False)


def list_collections(*, limit: int = 200, offset: int = 0) -> Call[CollectionPage]:
    """List collections by name, at most 200."""
    return Call("GET", "/v1/collections", CollectionPage, params={"limit": limit, "offset": offset})


def get_collection(collection: UUID | str) -> Call[Collection]:
    """Return a collection by name or id."""
    return Call("GET", _path("/v1/collections/{}", collection), Collection)


def update_collection(collection: UUID | str, **changes: Unpack[CollectionChanges]) -> Call[Collection]:
    """Change the settings of a collection; the others stay."""
    return Call("PATCH", _path("/v1/collections/{}", collection), Collection, dict(changes))


def delete_collection(collection: UUID | str) -> Call[Erasure]:
    """Erase a collection with its documents and all traces of them."""
    return Call("DELETE", _path("/v1/collections/{}", collection), Erasure)


def add_documents(
    collection: UUID | str,
    documents: Sequence[NewDocument] = (),
    *,
    files: Sequence[Path | str] = (),
    metadata: Mapping[str, Any] | None = None,
) -> Call[Job]:
    """Ingest texts or files in the background; ``jobs.wait`` waits for the job.

    Args:
        collection: Name or id of the collection.
        documents: Texts; the same source again replaces a document.
        files: Paths of files, instead of texts; their names become sources.
        metadata: Metadata of all files.

    Raises:
        ValueError: There are both texts and files.
        OSError: A file cannot be read.
    """
    path = _path("/v1/collections/{}/documents", collection)
    if not files:
        return Call("POST", path, Job, {"documents": documents})
    if documents:
        raise ValueError("Either documents or files can be sent in one request.")
    parts = [("files", (Path(file).name, Path(file).read_bytes())) for file in files]
    return Call("POST", path, Job, form={"metadata": json.dumps(metadata or {})}, files=parts)


def list_documents(
    collection: UUID | str, *, filters: Filters | None = None, limit: int = 50, offset: int = 0
) -> Call[DocumentPage]:
    """List the documents of a collection whose metadata match, at most 200."""
    params: dict[str, Any] = {"limit": limit, "offset": offset}
    if filters is not None:
        params["filters"] = json.dumps(filters)
    return Call("GET", _path("/v1/collections/{}/documents", collection), DocumentPage, params=params)


def get_document(document_id: UUID | str) -> Call[Document]:
    """Return a document without its text."""
    return Call("GET", _path("/v1/documents/{}", document_id), Document)


def delete_document(document_id: UUID | str) -> Call[Erasure]:
    """Erase a document with all traces of it."""
    return Call("DELETE", _path("/v1/documents/{}", document_id), Erasure)


def get_job(job_id: UUID | str) -> Call[Job]:
    """Return an ingestion and its progress."""
    return Call("GET", _path("/v1/jobs/{}", job_id), Job)


def wait_for_job(
    job_id: UUID | str, *, timeout_s: float = 600, on_progress: Callable[[Job], object] | None = None
) -> Steps[Job]:
    """Return an ingestion when it has finished, successfully or not.

    Args:
        job_id: Id of the job.
        timeout_s: Seconds to wait.
        on_progress: Called with the job at each look, up to the last one.

    Raises:
        JobNotFinishedError: It has not finished in time.
    """
    end, pause_s = time.monotonic() + timeout_s, _FIRST_POLL_S
    while True:
        job: Job = yield get_job(job_id)
        if on_progress is not None:
            on_progress(job)
        if job.is_finished:
            return job
        if time.monotonic() + pause_s > end:
            message = f"Job {job_id} has not finished in {timeout_s:g} s; it is {job.status}."
            raise JobNotFinishedError(message)
        yield pause_s
        pause_s = min(pause_s * 1.5, _SLOWEST_POLL_S)


def create_feedback(
    query_id: UUID | str, rating: Literal["up", "down"], **options: Unpack[FeedbackOptions]
) -> Call[Feedback]:
    """Rate an answer; a second rating with the same key replaces the first."""
    path = _path("/v1/queries/{}/feedback", query_id)
    return Call("POST", path, Feedback, {"rating": rating, **options})


def stop_answer(query_id: str) -> Call[Model]:
    """Stop a streamed answer; its caller does not wait long for it."""
    return Call("POST", _path("/v1/queries/{}/stop", query_id), Model, timeout_s=5.0)


def _path(template: str, value: UUID | str) -> str:
    return template.format(quote(str(value), safe=""))
