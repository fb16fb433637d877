"""A collection with one document, which exists during the check of a point."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

from infra.verification.points import require, wait_for

FACT = "The lighthouse of Quarrelsome Point is painted green every ninth year."
QUESTION = "How often is the lighthouse of Quarrelsome Point painted?"


@contextmanager
def temporary_collection(api: httpx2.Client) -> Iterator[str]:
    """Create a collection of a client's tenant, yield its id, and delete it."""
    name = f"verification-{uuid.uuid4().hex[:8]}"
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
