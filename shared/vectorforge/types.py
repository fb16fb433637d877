"""Values shared by all packages: collections, chunks, vectors, documents, principals."""

import sys
from array import array
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal, Self, TypeAlias
from uuid import UUID

Vector: TypeAlias = Sequence[float]
"""An embedding: finite floats, length = the collection's dimension."""
Compare: TypeAlias = Callable[[str, Sequence[tuple[str, str]]], Awaitable[Sequence[float]]]
"""Query, pairs of (heading, sentence) -> how near each is to the query, -1 to 1, in the same order."""

_EXPONENT_BYTE: Final = slice(3 if sys.byteorder == "little" else 0, None, 4)
_BELOW_2_41: Final = bytes(byte for byte in range(256) if byte & 127 < 84)
_BELOW_2_MINUS_41: Final = bytes(byte for byte in range(256) if byte & 127 < 43)


def has_ordinary_length(vector: "array[float]") -> bool:
    """Return True only if a single-precision vector is finite and its length is between 4e-13 and 3e14.

    Reads the byte with sign and upper exponent bits of each number (IEEE 754 binary32). With 1,536 dimensions
    this takes 9 microseconds, ``math.hypot`` 76 to 129: two checks of each vector were 14 % of this process's
    time for a document of one chunk. False says nothing: then compute the length.
    """
    exponents = vector.tobytes()[_EXPONENT_BYTE]
    return not exponents.translate(None, _BELOW_2_41) and bool(exponents.translate(None, _BELOW_2_MINUS_41))


Outcome: TypeAlias = Literal["answered", "empty", "error", "aborted", "cached", "deadline"]
"""Outcome of a query."""
LoggedOutcome: TypeAlias = Literal["started", Outcome]
"""Outcome in the query log: "started" until the record of the end is stored."""
Location: TypeAlias = Mapping[str, Any]
"""``{"page": 3, "rects": [[x0, y0, x1, y1], ...]}`` (shares of the page from its top left corner, 0 to 1),
``{"slide": 2}``, ``{"sheet": "Sales", "range": "A2:C9"}`` or ``{"heading": "Install > Linux"}``; of a chunk
with several, also ``offsets``: where the text of each rectangle or row begins, in characters of the chunk."""


def location_text(locations: Sequence[Location]) -> str:
    """Return locations as short text for people, the same on all API surfaces; headings are left out.

    Returns:
        "p. 12", "pp. 3–4", "slides 2, 5", "sheet Prices, A2:C9", "cells A2:B2"; several joined by "; ".
    """
    found: list[str] = []
    for name, singular, plural in (("page", "p.", "pp."), ("slide", "slide", "slides")):
        numbers = sorted({location[name] for location in locations if name in location})
        if len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1:
            found.append(f"{plural} {numbers[0]}–{numbers[-1]}")
        elif numbers:
            found.append(f"{plural if len(numbers) > 1 else singular} {', '.join(map(str, numbers))}")
    tables: dict[str, dict[str, None]] = {}
    for location in locations:
        if "sheet" in location or "range" in location:
            sheet = " ".join(location.get("sheet", "").split())
            tables.setdefault(sheet, {}).update({location["range"]: None} if "range" in location else {})
    for sheet, cells in tables.items():
        found.append(", ".join([f"sheet {sheet}", *cells]) if sheet else f"cells {', '.join(cells)}")
    return "; ".join(found)


EXACT_SCAN_LIMIT: Final = 10_000
"""Vectors of 384 dimensions up to which a search compares all; times: docs/results/performance.md."""
ROW_VERSION: Final = "_row_version"
"""Metadata field with the state of a database row, stored with its document only and shown nowhere."""


class DistanceMetric(StrEnum):
    """Comparison of two vectors, and the score of their distance (higher is better)."""

    COSINE = "cosine"
    """score = 1 - cosine distance, in [-1, 1]."""
    INNER_PRODUCT = "inner_product"
    """score = inner product, unbounded."""
    L2 = "l2"
    """score = 1 / (1 + Euclidean distance), in (0, 1]."""


class SearchMode(StrEnum):
    """Basis of a search."""

    HYBRID = "hybrid"
    """Vectors and words together."""
    DENSE = "dense"
    """Vectors only."""
    LEXICAL = "lexical"
    """Words only (BM25); the query is not embedded."""


class VectorIndex(StrEnum):
    """Content of the HNSW index of a collection's vectors; the vectors themselves are stored in full."""

    FULL = "full"
    """The vectors; above 2,000 dimensions in half precision."""
    HALF = "half"
    """The vectors in half precision: half the size; up to 4,000 dimensions, no number beyond 65,504."""
    BINARY = "binary"
    """The signs of their numbers, one bit each; not for the metric L2."""


ScanReason: TypeAlias = Literal["few", "many", "sparse", "unindexed", "short", "words"]
"""Reason for the method of a search: few match; many match; the collection is a small part of the index;
there is no index; the index returned fewer than match; lexical searches have no other method."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Method of a search for the nearest chunks."""

    method: Literal["exact", "index"]
    """All matching chunks were compared, or the approximate index was used."""
    reason: ScanReason

    @classmethod
    def for_reason(cls, reason: ScanReason) -> Self:
        """Return the scan of a reason."""
        return cls("index" if reason == "many" else "exact", reason)


DEFAULT_DENSE_WEIGHT: Final = 0.5


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Search settings of a collection; None: unchanged, or the default."""

    search_mode: SearchMode | None = None
    dense_weight: float | None = None
    """Weight of the score by vector in a hybrid search, 0 to 1."""
    language: str | None = None
    """Text search configuration of PostgreSQL for every document, e.g. "german"; "simple" leaves words
    unchanged. "auto": that of each document's language, and "english" where it is unknown."""
    keeps_words: bool | None = None
    """False, for a new collection that is searched by vectors only: storing a chunk then takes a fraction of
    the time and space. A search mode that needs words has them indexed later."""


@dataclass(frozen=True, slots=True)
class Collection:
    """Set of documents that share one embedding model, dimension and metric."""

    id: UUID
    name: str
    embedding_provider: str
    embedding_model: str
    dimension: int
    distance_metric: DistanceMetric
    query_prefix: str = ""
    """Prefix of an embedded query; some models need it (Nomic: "search_query: ")."""
    document_prefix: str = ""
    """Prefix of an embedded chunk (Nomic: "search_document: ")."""
    by_profile: bool = False
    """True if every document belongs to a profile, and every search must name one."""
    data_version: int = 0
    """Incremented by every change of the collection's documents."""
    description: str = ""
    search_mode: SearchMode = SearchMode.HYBRID
    """Default search mode of queries."""
    dense_weight: float = DEFAULT_DENSE_WEIGHT
    """Weight of the score by vector in a hybrid search, 0 to 1; the score by words has the rest. The
    default one is lower where the model does not know the language, see ``retriever.hybrid``."""
    language: str = "english"
    """Text search configuration of PostgreSQL for the chunks' words."""
    detect_language: bool = True
    """True if ``language`` applies only to documents whose own language is unknown."""
    languages: Sequence[str] = ()
    """Text search configurations that its chunks' words were indexed by; a query is searched by all."""
    terms_complete: bool = True
    """False while words of some chunks still have to be indexed, or reindexed for another language."""
    keeps_words: bool = True
    """False if it can be searched by vectors only."""
    space: str = ""
    """Partition of the embeddings with the collection's vectors."""
    keep_originals: bool = True
    """True if the files of its documents are kept."""
    contextual: bool = False
    """True if chunks are embedded and indexed with a context from now on."""
    ocr: bool = False
    """True if pages without a text layer are recognized."""
    created_at: datetime | None = None
    document_count: int = 0
    chunk_count: int = 0

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Self:
        """Return the collection of a row with ``collection_repo.COLUMNS``."""
        metric, mode = DistanceMetric(row["distance_metric"]), SearchMode(row["search_mode"])
        return cls(**{**row, "distance_metric": metric, "search_mode": mode})

    @property
    def vector_index(self) -> VectorIndex:
        """Content of the vector index, from the name of the partition."""
        suffix = self.space.rpartition("_")[2]
        return next((kind for kind in VectorIndex if kind == suffix), VectorIndex.FULL)

    @property
    def embedding_config(self) -> Mapping[str, Any]:
        """The same facts under the names of the collection's configuration document."""
        return {
            **dict.fromkeys(("default_provider", "embedding_provider"), self.embedding_provider),
            **dict.fromkeys(("model", "embedding_model"), self.embedding_model),
            "dimension": self.dimension,
            **dict.fromkeys(("metric", "distance_metric"), self.distance_metric.value),
        }


@dataclass(frozen=True, slots=True)
class Chunk:
    """Part of a document that is embedded and stored."""

    id: UUID
    document_id: UUID
    index: int
    """Position in the document, from 0."""
    text: str
    start_offset: int
    """Offset of the first character in the document's text; ``document.text[start:end] == text``."""
    end_offset: int
    """Offset after the last character."""
    token_count: int
    """Counted once, at ingestion, with ``tokens.estimate_tokens``."""
    heading: str | None = None
    """Nearest heading path above the chunk, e.g. "Install > Linux"."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Metadata of the document and the chunk, used by filters."""
    locations: Sequence[Location] = ()
    """Places in the original file, in order; empty if it was stored by a version without locations."""


@dataclass(frozen=True, slots=True)
class RetrievedChunk:
    """Chunk retrieved for a query."""

    chunk: Chunk
    score: float
    """See ``DistanceMetric``; higher is better."""
    distance: float
    """Result of the database operator; lower is nearer."""
    document_source: str
    """Source of the document: path, URL or key."""
    document_title: str | None = None
    relevance: float | None = None
    """Ranking value of a hybrid or lexical search; None: ranked by ``score``."""
    lexical_score: float | None = None
    """BM25 of a hybrid or lexical search, 0 or more; 0: no word of the query; None: another mode."""
    vector: Vector | None = field(default=None, repr=False, compare=False)
    """Embedding of the chunk, if the search was to return it."""


class NearestChunks(list[RetrievedChunk]):
    """The result of a search: the chunks, best first, and how many they were chosen from.

    Args:
        chunks: Best first.
        matched: Chunks that pass collection, profile and filter; None if unknown.
        matched_is_at_least: Counting stopped at ``matched``, and there are more.
        scan: Kind of scan; None if unknown.
        version: Version of the collection that was searched; None if unknown.
    """

    def __init__(
        self,
        chunks: Iterable[RetrievedChunk] = (),
        matched: int | None = None,
        *,
        matched_is_at_least: bool = False,
        scan: Scan | None = None,
        version: int | None = None,
    ) -> None:
        super().__init__(chunks)
        self.matched = matched
        self.matched_is_at_least = matched_is_at_least
        self.scan = scan
        self.version = version


@dataclass(frozen=True, slots=True)
class ChunkDraft:
    """Chunk of a document, not stored yet."""

    index: int
    text: str
    start_offset: int
    end_offset: int
    token_count: int
    content_hash: bytes
    """sha256 over what is embedded (32 bytes); an equal hash means the stored embedding is reused."""
    heading: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    locations: Sequence[Location] = ()
    index_context: str | None = None
    """Words that place the chunk in its document: embedded and indexed with it, and never returned. A chunk
    that is stored already retains its own."""
    vector: Vector | None = None
    """None: a chunk with this hash is stored in the document and retains its id and embedding."""
    vectors: Mapping[str, Vector] | None = None
    """Space -> vector, to be certain of each vector's model: a store rejects the chunk if its collection's
    space is missing, and ignores ``vector``. None: ``vector`` is of the collection's current model."""


@dataclass(frozen=True, slots=True)
class DocumentDraft:
    """Extracted document, not stored yet."""

    source: str
    """Identity of the document within its collection: path, URL or key, at most 2,000 characters."""
    text: str
    media_type: str
    content_hash: bytes
    """sha256 of the text, title, metadata and chunking settings (32 bytes); equal means unchanged."""
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    parent_source: str | None = None
    """File that contains this record."""
    document_id: UUID | None = None
    """Id if the source is new in its collection; None: a new one."""


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """Result of replacing a document."""

    document_id: UUID
    version: int
    """1 for the first version; incremented by every change."""
    chunks_added: int
    chunks_kept: int
    """Unchanged: same id, same embedding."""
    chunks_removed: int
    unchanged: bool = False
    """True: the stored document had the same content hash; nothing was written."""
    warnings: tuple[str, ...] = ()
    """Parts of ingestion that failed without failing the document, as sentences."""


@dataclass(frozen=True, slots=True)
class ReplacedProfile:
    """Result of replacing documents of a profile."""

    stored: Sequence[StoredDocument]
    """In the order of the documents given."""
    documents_removed: int = 0
    chunks_removed: int = 0
    """Chunks of removed documents; those of replaced documents are in ``stored``."""


class Scope(StrEnum):
    """Permission of a credential within its tenant; each includes those before it."""

    READ = "read"
    """Query, search, and read collections and documents."""
    WRITE = "write"
    """Add, change and delete documents, profiles and collections."""
    ADMIN = "admin"
    """Manage keys, read all queries and costs, change the embedding model."""

    @property
    def included(self) -> "frozenset[Scope]":
        """This scope and those it includes."""
        return frozenset([*Scope][: [*Scope].index(self) + 1])


@dataclass(frozen=True, slots=True)
class Principal:
    """Identity behind a credential. No field is a secret."""

    tenant: str
    """The tenant: 1 to 128 bytes."""
    scopes: frozenset[Scope]
    """Granted scopes, listed with the scopes they include. May be empty."""
    credential: str
    """Name of the credential in logs: a key's id, a role's name, the hash of a token's subject."""
    remembered_keys: frozenset[str] = field(default=frozenset(), compare=False)
    """Ids of keys from the cache, whose validity must be checked."""

    def allows(self, scope: Scope) -> bool:
        """Return True if this scope is granted."""
        return scope in self.scopes
