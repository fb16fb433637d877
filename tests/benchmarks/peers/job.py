"""The job of every contestant. Standard library only: contestants import it in their environments.

Embed the query, find the ten chunks nearest by cosine in one category, build the prompt, call the model;
return the answer and its sources.
"""

import os
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

DIMENSION = 1536
EMBEDDING_MODEL = "text-embedding-3-small"
CHAT_MODEL = "gpt-4o-mini"
API_KEY = "sk-benchmark"
TOP_K = 10
EMBEDDING_BATCH = 256
"""Texts per request for vectors, where configurable."""
ANSWER_TOKENS = 128
TOKEN_MARK = "tok0"
"""Marker of every piece of the answer, for counting pieces; chunks have letters only."""
CHUNK_CHARS = 800
SYSTEM = (
    "You are a careful assistant. Answer only from the numbered context passages. Cite passages as [n]. "
    "If the context does not contain the answer, say so."
)
CATEGORIES = {"half": 0.5, "tenth": 0.1, "hundredth": 0.01, "thousandth": 0.001}
"""Values of the metadata's ``category`` and their shares of the chunks; the others have "rest"."""


class Chunk(NamedTuple):
    """A chunk of text."""

    id: str
    text: str
    metadata: dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Addresses of database and model, passed in the environment of a contestant's process."""

    database_host: str
    model_url: str
    """Base URL of the OpenAI-compatible server with the version: http://127.0.0.1:1234/v1."""
    database_port: int = 5432
    database: str = "peers"
    user: str = "peer"
    suffix: str = ""
    """Suffix of the names of tables and collections, which differ between parts."""

    @property
    def authority(self) -> str:
        """Return the part of the URL between scheme and query."""
        return f"{self.user}@{self.database_host}:{self.database_port}/{self.database}"

    @property
    def conninfo(self) -> str:
        """Return the connection string for libpq."""
        return f"host={self.database_host} port={self.database_port} user={self.user} dbname={self.database}"

    def environment(self) -> dict[str, str]:
        """Return the environment variables for a child process."""
        return {
            "PEER_DATABASE_HOST": self.database_host,
            "PEER_DATABASE_PORT": str(self.database_port),
            "PEER_MODEL_URL": self.model_url,
            "PEER_SUFFIX": self.suffix,
        }

    @classmethod
    def from_environment(cls) -> "Place":
        """Read the variables set by the parent process.

        Raises:
            KeyError: The process was not started by the benchmark.
        """
        return cls(
            database_host=os.environ["PEER_DATABASE_HOST"],
            database_port=int(os.environ["PEER_DATABASE_PORT"]),
            model_url=os.environ["PEER_MODEL_URL"],
            suffix=os.environ["PEER_SUFFIX"],
        )


class Answer(NamedTuple):
    """Answer of a contestant."""

    text: str
    sources: list[dict[str, Any]]
    """``id``, ``score`` and ``metadata`` of each chunk, best first."""


class Contestant(Protocol):
    """Interface of the class of this name in every module of ``contestants``."""

    async def open(self) -> None:
        """Connect, or prepare to."""

    async def close(self) -> None:
        """Release all resources."""

    async def query(self, question: str, category: str) -> Answer:
        """Do the whole job, and return the answer."""

    def stream(self, question: str, category: str) -> AsyncIterator[str]:
        """Do the whole job, and yield the answer in pieces."""

    async def clear(self) -> None:
        """Delete the stored data, and create an empty table or collection."""

    async def ingest(self, chunks: Sequence[Chunk]) -> None:
        """Embed the chunks and store them."""

    async def index(self) -> None:
        """Build the indexes, unless ingestion has."""


_spelling = random.Random(7)
_WORDS = [
    "".join(_spelling.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(_spelling.randint(2, 9)))
    for _ in range(4000)
]


def chunk(number: int) -> Chunk:
    """Return the chunk of this number, the same in every process."""
    rng = random.Random(number)
    text = " ".join(rng.choices(_WORDS, k=200))[:CHUNK_CHARS].strip()
    metadata = {"category": _category(rng.random()), "document": number // 10, "number": number}
    return Chunk(f"chunk-{number:08d}", text, metadata)


def _category(share: float) -> str:
    edge = 0.0
    for name, width in CATEGORIES.items():
        edge += width
        if share < edge:
            return name
    return "rest"


def chunks(count: int, *, first: int = 0) -> list[Chunk]:
    """Return chunks."""
    return [chunk(number) for number in range(first, first + count)]


def question(number: int) -> str:
    """Return a unique query of ten words."""
    words = random.Random(1_000_003 * (number + 1)).choices(_WORDS, k=10)
    return f"What is known about {' '.join(words)}? ({number})"


def prompt(question: str, passages: Sequence[str]) -> str:
    """Return the user's message."""
    context = "\n\n".join(f"[{number}] {passage}" for number, passage in enumerate(passages, start=1))
    return f"Context:\n{context}\n\nQuestion: {question}\nAnswer:"


def messages(question: str, passages: Sequence[str]) -> list[dict[str, str]]:
    """Return the request's messages."""
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": prompt(question, passages)},
    ]
