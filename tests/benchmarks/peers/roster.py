"""The contestants, their start and their requests."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peers import job

DENSE, HYBRID = "benchmark-dense", "benchmark-hybrid"
"""Collections of this service: with the job's vector search, and with the service's default search."""


class WrappedDoor:
    """A module behind ``peers.serve``."""

    health = "/health"

    def command(self, python: Path, module: str, port: int) -> list[str]:
        """Return the command that starts the server."""
        return [str(python), "-m", "peers.serve", module, str(port)]

    def request(self, question: str, category: str, *, stream: bool) -> tuple[str, dict[str, Any]]:
        """Return path and body of a query."""
        return "/stream" if stream else "/query", {"question": question, "category": category}

    def sources(self, body: bytes) -> int:
        """Return the number of chunks of an answer."""
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
    """Title in tables."""
    module: str
    environment: str | None
    """Key of ``environments.REQUIREMENTS``, or None for this project's environment."""
    door: WrappedDoor = field(default_factory=WrappedDoor)
    collection: str | None = None
    optional: bool = True
    """Omitted if its environment cannot be created; the others are required."""

    def python(self, found: dict[str, Path]) -> Path:
        """Return its interpreter."""
        return Path(sys.executable) if self.environment is None else found[self.environment]

    def variables(self, database_url: str, model_url: str) -> dict[str, str]:
        """Return the settings of this service; empty for the others.

        Args:
            database_url: Connection string of the app role.
            model_url: Base URL of the OpenAI-shaped server.
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
"""Baseline of the others."""
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
        Entry("langchain_hybrid", "LangChain, hybrid", "langchain_hybrid", "langchain"),
        Entry("llamaindex", "LlamaIndex", "llamaindex", "llamaindex"),
        Entry("llamaindex_hybrid", "LlamaIndex, hybrid", "llamaindex_hybrid", "llamaindex"),
        Entry("haystack", "Haystack", "haystack", "haystack"),
    )
}
OURS = [name for name, entry in ROSTER.items() if entry.collection]
"""Names of this service's contestants."""
