"""A collection with one document, which exists during the check of a point."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from infra.verification.points import require, wait_for

FACT = "The lighthouse of Quarrelsome Point is painted green every ninth year."
QUESTION = "How often is the lighthouse of Quarrelsome Point painted?"


@contextmanager
def temporary_collection(api: httpx2.Client, *, suffix: str = "") -> Iterator[str]:
    """Create a collection of a client's tenant, yield its id, and delete it."""
    name = f"verification-{uuid.uuid4().hex[:8]}{suffix}"
    created = api.post("/v1/collections", json={"name": name})
    require(created.status_code == 201, f"a new collection: {created.status_code}")
    collection: str = created.json()["id"]
    try:
        yield collection
    finally:
        api.delete(f"/v1/collections/{collection}")


def ingest(api: httpx2.Client, collection: str) -> None:
    """Ingest the document with ``FACT``, and wait for the end of its job."""
    documents = {"documents": [{"source": "lighthouse.md", "text": FACT}]}
    job = api.post(f"/v1/collections/{collection}/documents", json=documents).json()["id"]

    def ended() -> str | None:
        status: str = api.get(f"/v1/jobs/{job}").json()["status"]
        return status if status not in ("queued", "running") else None

    status = wait_for(ended, what="the end of the job")
    require(status == "succeeded", f"the job has {status}")


def ask(api: httpx2.Client, collection: str) -> dict[str, Any]:
    """Query the collection without a model, and return the response."""
    body = {"query": QUESTION, "collection": collection, "provider": "extractive"}
    answer = api.post("/v1/rag/query", json=body)
    require(answer.status_code == 200, f"the query: {answer.status_code}")
    found: dict[str, Any] = answer.json()
    return found
