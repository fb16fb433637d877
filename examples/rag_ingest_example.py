"""Put a few documents into the default collection and query them, with the standard library only.

Start the server with `uv run vectorforge up`, then run `uv run python examples/rag_ingest_example.py`. The
documents are deleted at the end unless ``--keep`` is given. ``VECTORFORGE_URL`` sets another server,
``VECTORFORGE_API_KEY`` its key.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request
from typing import Any

BASE_URL = os.environ.get("VECTORFORGE_URL", "http://localhost:8000")
COLLECTION = "default"
TIMEOUT_S = 120

DOCUMENTS = [
    {
        "source": "examples/pgvector.md",
        "title": "Vectors in PostgreSQL",
        "media_type": "text/markdown",
        "text": "# Vectors in PostgreSQL\n\npgvector adds a vector type to PostgreSQL. An HNSW index answers "
        "nearest-neighbor searches in milliseconds, at the price of a small loss of recall.",
        "metadata": {"category": "technology", "author": "John Doe", "year": "2024"},
    },
    {
        "source": "examples/overfitting.md",
        "title": "Overfitting",
        "media_type": "text/markdown",
        "text": "# Overfitting\n\nA model overfits when it learns the noise of its training data. Holding "
        "back a validation set shows it; regularization and more data help against it.",
        "metadata": {"category": "science", "difficulty": "beginner", "topic": "ml"},
    },
    {
        "source": "examples/bread.md",
        "title": "Sourdough",
        "media_type": "text/markdown",
        "text": "# Sourdough\n\nA sourdough starter is fed once a day with equal weights of flour and water. "
        "Sourdough bread should rise for eight hours at room temperature.",
        "metadata": {"category": "cooking", "difficulty": "beginner"},
    },
]


def call(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """Send a request and return the JSON of the response."""
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("VECTORFORGE_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{BASE_URL}{path}", data, headers, method=method)  # noqa: S310 - the reader's own server
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310 - the reader's own server
        return json.load(response) if response.status != 204 else None


def find_or_create_collection(name: str) -> str:
    """Return the id of the collection with this name."""
    for collection in call("GET", "/v1/collections")["collections"]:
        if collection["name"] == name:
            return str(collection["id"])
    return str(call("POST", "/v1/collections", {"name": name})["id"])


def ingest(collection_id: str, documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Add documents, wait until they are ingested, and return the finished job."""
    job: dict[str, Any] = call("POST", f"/v1/collections/{collection_id}/documents", {"documents": documents})
    while job["status"] in ("queued", "running"):
        time.sleep(0.2)
        job = call("GET", f"/v1/jobs/{job['id']}")
    return job


def rag_query(query: str, **options: Any) -> dict[str, Any]:
    """Query the default collection."""
    answer: dict[str, Any] = call("POST", "/v1/rag/query", {"query": query, **options})
    return answer


def delete(job: dict[str, Any]) -> None:
    """Delete the documents of a job."""
    for document in job["documents"]:
        if document["document_id"]:
            call("DELETE", f"/v1/documents/{document['document_id']}")


def main(*, keep: bool) -> None:
    """Ingest, query, and delete the documents unless ``keep`` is set."""
    job = ingest(find_or_create_collection(COLLECTION), DOCUMENTS)
    try:
        show(job)
    finally:
        if not keep:
            delete(job)
            print(f"\nDeleted the {len(DOCUMENTS)} documents again; --keep leaves them.")


def show(job: dict[str, Any]) -> None:
    """Print the ingested documents, then query with and without a filter."""
    print(f"Ingestion {job['status']}: {job['documents_done']} of {job['documents_total']} documents")
    for document in job["documents"]:
        print(f"  {document['source']}: {document['status']}")

    answer = rag_query("How long should sourdough bread rise?", k=3)
    print(f"\n{answer['response']}")

    answer = rag_query(
        "What helps against overfitting, and what shows it?",
        filters={"difficulty": "beginner", "topic": "ml"},
    )
    print(f"\n{answer['response']}")
    for entry in answer["context"]:
        print(f"  {entry['label']} {entry['source']} (score {entry['score']:.3f})")


if __name__ == "__main__":
    try:
        main(keep="--keep" in sys.argv)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"The server refused: {json.load(error).get('detail', error.reason)}") from None
    except OSError as error:
        raise SystemExit(f"No server at {BASE_URL} ({error}). Start it: uv run vectorforge up") from None
