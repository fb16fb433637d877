"""Who takes part, and how each is started and asked."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peers import job

DENSE, HYBRID = "benchmark-dense", "benchmark-hybrid"
"""Collections of this service: found by vectors as the job says, and by the default of the service."""


class WrappedDoor:
    """A module behind ``peers.serve``."""

    health = "/health"

    def command(self, python: Path, module: str, port: int) -> list[str]:
        """What starts the server."""
        return [str(python), "-m", "peers.serve", module, str(port)]

    def request(self, question: str, category: str, *, stream: bool) -> tuple[str, dict[str, Any]]:
        """Path and body of a question."""
        return "/stream" if stream else "/query", {"question": question, "category": category}

    def sources(self, body: bytes) -> int:
        """How many passages an answer rests on."""
        return len(json.loads(body)["sources"])


class ServiceDoor(WrappedDoor):
    """``vectorforge up`` and its ``POST /v1/rag/query``, as users get them."""

    def __init__(self, collection: str) -> None:
        self._collection = collection

    def command(self, python: Path, module: str, port: int) -> list[str]:
        return [str(python), "-m", "vectorforge.cli", "up", "--port", str(port), "--no-sample"]

    def request(self, question: str, category: str, *, stream: bool) -> tuple[str, dict[str, Any]]:
        return "/v1/rag/query", {
            "query": question,
            "k": job.TOP_K,
            "filters": {"category": category},
            "collection": self._collection,
            "stream": stream,
        }

    def sources(self, body: bytes) -> int:
        return len(json.loads(body)["context"])


@dataclass(frozen=True)
class Entry:
    """One contestant."""

    name: str
    title: str
    """In tables."""
    module: str
    environment: str | None
    """Key of ``environments.REQUIREMENTS``; None: this project's."""
    door: WrappedDoor = field(default_factory=WrappedDoor)
    collection: str | None = None
    optional: bool = True
    """Left out where its environment cannot be made; the others are needed."""

    def python(self, found: dict[str, Path]) -> Path:
        """Its interpreter, of those that were made."""
        return Path(sys.executable) if self.environment is None else found[self.environment]

    def variables(self, database_url: str, model_url: str) -> dict[str, str]:
        """Settings of this service; nothing for the others.

        Args:
            database_url: Of the app role.
            model_url: Of the OpenAI-shaped server.
        """
        if self.collection is None:
            return {}
        return {
            "PEER_COLLECTION": self.collection,
            "VECTORFORGE_DATABASE_URL": database_url,
            "VECTORFORGE_OPENAI_API_KEY": job.API_KEY,
            "VECTORFORGE_OPENAI_BASE_URL": model_url,
            "VECTORFORGE_DEFAULT_LLM_MODEL": job.CHAT_MODEL,
            "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "openai",
            "VECTORFORGE_EMBEDDING_BATCH_SIZE": str(job.EMBEDDING_BATCH),
            "VECTORFORGE_DEFAULT_COLLECTION": self.collection,
        }


FLOOR = "raw_http"
"""What the others are compared with."""
ROSTER: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(FLOOR, "by hand (floor)", "raw_http", "raw", optional=False),
        Entry("raw_sdk", "by hand, OpenAI's SDK", "raw_sdk", "raw", optional=False),
        Entry(
            "vectorforge",
            "VectorForge, dense",
            "vectorforge",
            None,
            ServiceDoor(DENSE),
            collection=DENSE,
            optional=False,
        ),
        Entry(
            "vectorforge_hybrid",
            "VectorForge, hybrid",
            "vectorforge",
            None,
            ServiceDoor(HYBRID),
            collection=HYBRID,
            optional=False,
        ),
        Entry("langchain", "LangChain", "langchain", "langchain"),
        Entry("llamaindex", "LlamaIndex", "llamaindex", "llamaindex"),
        Entry("haystack", "Haystack", "haystack", "haystack"),
    )
}
OURS = [name for name, entry in ROSTER.items() if entry.collection]
"""Names of this service."""
