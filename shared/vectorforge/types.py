"""Values that travel between the rooms: metrics, collections, chunks, vectors.

Who a request comes from, and what they may do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Self, TypeAlias
from uuid import UUID

Vector: TypeAlias = Sequence[float]
"""An embedding: finite floats, length = the collection's dimension."""


class DistanceMetric(StrEnum):
    """How two vectors are compared, and the score made of their distance (higher is better)."""

    COSINE = "cosine"
    """score = 1 - cosine distance, in [-1, 1]."""
    INNER_PRODUCT = "inner_product"
    """score = inner product, unbounded."""
    L2 = "l2"
    """score = 1 / (1 + Euclidean distance), in (0, 1]."""


class SearchMode(StrEnum):
    """What passages are found by."""

    HYBRID = "hybrid"
    """Vectors and words together."""
    DENSE = "dense"
    """Vectors only."""
    LEXICAL = "lexical"
    """Words only (BM25); the question is not embedded."""


class VectorIndex(StrEnum):
    """What the HNSW index of a collection's vectors is made of; the vectors themselves are kept in full."""

    FULL = "full"
    """The vectors; above 2,000 dimensions in half precision."""
    HALF = "half"
    """The vectors in half precision: half the size; up to 4,000 dimensions, no number beyond 65,504."""
    BINARY = "binary"
    """The signs of their numbers, one bit each; not for the metric L2."""


ScanReason: TypeAlias = Literal["few", "many", "sparse", "unindexed", "short", "words"]
"""Why a search was made as it was. Few match; many do; the collection is a small part of what the index
holds; there is no index; the index gave fewer than match; by words there is no other way."""


@dataclass(frozen=True, slots=True)
class Scan:
    """How a search found the nearest passages."""

    method: Literal["exact", "index"]
    """All that match were compared, or the approximate index was asked."""
    reason: ScanReason

    @classmethod
    def for_reason(cls, reason: ScanReason) -> Self:
        """The scan that is made for a reason."""
        return cls("index" if reason == "many" else "exact", reason)


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How a collection is searched, where it is to be said; None: as it is, or as by default."""

    search_mode: SearchMode | None = None
    """What its questions are searched by that do not say it themselves."""
    dense_weight: float | None = None
    """Weight of the score by vector in a hybrid search, 0 to 1."""
    language: str | None = None
    """A text search configuration of PostgreSQL, e.g. "german"; "simple" takes words as they are."""
    keeps_words: bool | None = None
    """False, for a new collection that is searched by vectors only: storing a passage then takes a fraction
    of the time and space. A search mode that needs words has them read after all."""


@dataclass(frozen=True, slots=True)
class Collection:
    """A set of documents that share one embedding model, dimension and metric."""

    id: UUID
    name: str
    embedding_provider: str
    embedding_model: str
    dimension: int
    distance_metric: DistanceMetric
    query_prefix: str = ""
    """Put before a query when it is embedded; some models need it (Nomic: "search_query: ")."""
    document_prefix: str = ""
    """Put before a chunk when it is embedded (Nomic: "search_document: ")."""
    by_profile: bool = False
    """Whether every document belongs to a profile, and every search has to name one."""
    data_version: int = 0
    """Grows by one with every change of the collection's documents."""
    description: str = ""
    search_mode: SearchMode = SearchMode.HYBRID
    """How questions are searched that do not say it themselves."""
    dense_weight: float = 0.5
    """Weight of the score by vector in a hybrid search, 0 to 1; the score by words has the rest."""
    language: str = "english"
    """The text search configuration of PostgreSQL that reads the passages' words."""
    terms_complete: bool = True
    """False: words of some passages are still to be read, or to be read anew by another language."""
    keeps_words: bool = True
    """False: it can be searched by vectors only."""
    space: str = ""
    """The partition of the embeddings that holds the collection's vectors."""
    created_at: datetime | None = None
    document_count: int = 0
    chunk_count: int = 0

    @property
    def vector_index(self) -> VectorIndex:
        """What the index of its vectors is made of, as the name of their partition says."""
        suffix = self.space.rpartition("_")[2]
        return next((kind for kind in VectorIndex if kind == suffix), VectorIndex.FULL)

    @property
    def embedding_config(self) -> Mapping[str, Any]:
        """The same facts under the names of the collection's configuration document."""
        return {
            "default_provider": self.embedding_provider,
            "embedding_provider": self.embedding_provider,
            "model": self.embedding_model,
            "embedding_model": self.embedding_model,
            "dimension": self.dimension,
            "metric": self.distance_metric.value,
            "distance_metric": self.distance_metric.value,
        }


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage of a document."""

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
    """Nearest heading path above the passage, e.g. "Install > Linux"."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The document's metadata and the passage's own; what filters look at."""


@dataclass(frozen=True, slots=True)
class RetrievedChunk:
    """A passage found for a question."""

    chunk: Chunk
    score: float
    """See ``DistanceMetric``; higher is better."""
    distance: float
    """What the database operator returned; lower is nearer."""
    document_source: str
    """Where the document came from: path, URL or key."""
    document_title: str | None = None
    relevance: float | None = None
    """What passages of a hybrid or lexical search are ranked by; None: by ``score``."""
    lexical_score: float | None = None
    """BM25 of a hybrid or lexical search, 0 or more; 0: none of the question's words; None: not asked for."""


@dataclass(frozen=True, slots=True)
class ChunkDraft:
    """A passage cut from a document, not stored yet."""

    index: int
    text: str
    start_offset: int
    end_offset: int
    token_count: int
    content_hash: bytes
    """sha256 over what is embedded (32 bytes); equal hash means the stored embedding can be kept."""
    heading: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    vector: Vector | None = None
    """None: a chunk with this hash is stored in the document already and keeps its id and embedding."""
    vectors: Mapping[str, Vector] | None = None
    """Space -> vector, where it is to be certain which model made which: a store refuses the chunk when its
    collection's own space is not among them, and looks at ``vector`` no more. None: ``vector`` is of the
    collection's model, whichever that is when the chunk is stored."""


@dataclass(frozen=True, slots=True)
class DocumentDraft:
    """A document read and extracted, not stored yet."""

    source: str
    """Identity of the document within its collection: path, URL or key, at most 2,000 characters."""
    text: str
    media_type: str
    content_hash: bytes
    """sha256 of the text, title, metadata and chunking settings (32 bytes); equal means nothing to do."""
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    parent_source: str | None = None
    """The file that this is a record of; see ``VectorStore.delete_left_out``."""


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """What replacing a document did."""

    document_id: UUID
    version: int
    """1 for the first version; grows by one with every change."""
    chunks_added: int
    chunks_kept: int
    """Unchanged: same id, same embedding."""
    chunks_removed: int
    unchanged: bool = False
    """True: the stored document had the same content hash; nothing was written."""


@dataclass(frozen=True, slots=True)
class ReplacedProfile:
    """What replacing documents of a profile did."""

    stored: Sequence[StoredDocument]
    """In the order of the documents given."""
    documents_removed: int = 0
    chunks_removed: int = 0
    """Of the documents removed; those that replaced documents lost are in ``stored``."""


class Scope(StrEnum):
    """What a credential may do within its tenant; each includes those before it."""

    READ = "read"
    """Ask, search, and see collections and documents."""
    WRITE = "write"
    """Add, change and delete documents, profiles and collections."""
    ADMIN = "admin"
    """Keys, everybody's questions and costs, changes of the embedding model."""

    @property
    def included(self) -> "frozenset[Scope]":
        """This scope and those that it includes."""
        ordered = list(Scope)
        return frozenset(ordered[: ordered.index(self) + 1])


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom a credential stands for. No field is a secret."""

    tenant: str
    """The tenant: 1 to 128 bytes."""
    scopes: frozenset[Scope]
    """What it may do; a scope that includes others stands beside these. May be empty."""
    credential: str
    """Names the credential in logs: a key's id, a role's name, the hash of a token's subject."""
    remembered_keys: frozenset[str] = field(default=frozenset(), compare=False)
    """Ids of keys that were taken from memory: whether they are still good is to be asked."""

    def allows(self, scope: Scope) -> bool:
        """Whether it may do what needs this scope."""
        return scope in self.scopes
