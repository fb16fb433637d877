"""The job that every contestant does. Only the standard library: contestants import it in their environments.

Embed the question, find the ten passages nearest by cosine among those of one category, build the prompt, ask
the model; the answer and its sources.
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
"""Texts in one request for vectors, for whoever lets it be chosen."""
ANSWER_TOKENS = 128
TOKEN_MARK = "tok0"
"""In every piece of the answer, and in no passage, whose words are letters: any stream can be counted."""
CHUNK_CHARS = 800
SYSTEM = (
    "You are a careful assistant. Answer only from the numbered context passages. Cite passages as [n]. "
    "If the context does not contain the answer, say so."
)
CATEGORIES = {"half": 0.5, "tenth": 0.1, "hundredth": 0.01, "thousandth": 0.001}
"""Value of the metadata's ``category`` and the share of passages that have it; the others have "rest"."""


class Chunk(NamedTuple):
    """A passage, cut already."""

    id: str
    text: str
    metadata: dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where a contestant finds database and model; passed on in the environment of its process."""

    database_host: str
    model_url: str
    """Of the OpenAI-shaped server, with the version: http://127.0.0.1:1234/v1."""
    database_port: int = 5432
    database: str = "peers"
    user: str = "peer"
    suffix: str = ""
    """Of the names of tables and collections: those of another part are others."""

    @property
    def authority(self) -> str:
        """What stands between the scheme and the query of a URL."""
        return f"{self.user}@{self.database_host}:{self.database_port}/{self.database}"

    @property
    def conninfo(self) -> str:
        """For libpq."""
        return f"host={self.database_host} port={self.database_port} user={self.user} dbname={self.database}"

    def environment(self) -> dict[str, str]:
        """Variables for a child process."""
        return {
            "PEER_DATABASE_HOST": self.database_host,
            "PEER_DATABASE_PORT": str(self.database_port),
            "PEER_MODEL_URL": self.model_url,
            "PEER_SUFFIX": self.suffix,
        }

    @classmethod
    def from_environment(cls) -> "Place":
        """As told by the parent process.

        Raises:
            KeyError: It was not started by the benchmark.
        """
        return cls(
            database_host=os.environ["PEER_DATABASE_HOST"],
            database_port=int(os.environ["PEER_DATABASE_PORT"]),
            model_url=os.environ["PEER_MODEL_URL"],
            suffix=os.environ["PEER_SUFFIX"],
        )


class Answer(NamedTuple):
    """What a contestant found and said."""

    text: str
    sources: list[dict[str, Any]]
    """``id``, ``score`` and ``metadata`` of each, best first."""


class Contestant(Protocol):
    """What every module of ``contestants`` has as its class of the same name."""

    async def open(self) -> None:
        """Connect, or get ready to."""

    async def close(self) -> None:
        """Let go of everything."""

    async def query(self, question: str, category: str) -> Answer:
        """The whole job, answered at once."""

    def stream(self, question: str, category: str) -> AsyncIterator[str]:
        """The whole job, the answer in pieces."""

    async def clear(self) -> None:
        """Forget what was stored, and have an empty table or collection."""

    async def ingest(self, chunks: Sequence[Chunk]) -> None:
        """Embed the chunks and store them."""

    async def index(self) -> None:
        """Build what a search is fast by, where ingestion has not."""


_spelling = random.Random(7)
_WORDS = [
    "".join(_spelling.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(_spelling.randint(2, 9)))
    for _ in range(4000)
]


def chunk(number: int) -> Chunk:
    """The passage of this number; the same in every process."""
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
    """That many passages."""
    return [chunk(number) for number in range(first, first + count)]


def question(number: int) -> str:
    """A question of ten words that is like no other."""
    words = random.Random(1_000_003 * (number + 1)).choices(_WORDS, k=10)
    return f"What is known about {' '.join(words)}? ({number})"


def prompt(question: str, passages: Sequence[str]) -> str:
    """The user's message."""
    context = "\n\n".join(f"[{number}] {passage}" for number, passage in enumerate(passages, start=1))
    return f"Context:\n{context}\n\nQuestion: {question}\nAnswer:"


def messages(question: str, passages: Sequence[str]) -> list[dict[str, str]]:
    """The request's messages."""
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": prompt(question, passages)},
    ]
