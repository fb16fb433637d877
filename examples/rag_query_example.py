"""Every feature of ``POST /v1/rag/query``, with the standard library only.

Start the server with `uv run vectorforge up`, ingest your own documents or run
`uv run python examples/rag_ingest_example.py --keep`, then run `uv run python examples/rag_query_example.py`.
``VECTORFORGE_URL`` sets another server, ``VECTORFORGE_API_KEY`` its key.
"""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import Any

BASE_URL = os.environ.get("VECTORFORGE_URL", "http://localhost:8000")
TIMEOUT_S = 120


def post(body: dict[str, Any]) -> HTTPResponse:
    """Send a query and return the open response, which can be read incrementally."""
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("VECTORFORGE_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"{BASE_URL}/v1/rag/query", data, headers)  # noqa: S310 - the reader's own server
    response: HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT_S)  # noqa: S310 - the reader's own server
    return response


def ask(query: str, **options: Any) -> dict[str, Any]:
    """Return the complete answer."""
    with post({"query": query, **options}) as response:
        answer: dict[str, Any] = json.load(response)
        return answer


def ask_streaming(query: str, **options: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the answer's events, (name, data), as they arrive.

    Raises:
        ConnectionError: The stream ended without ``done`` or ``error``: the answer is not complete.
    """
    with post({"query": query, "stream": True, **options}) as response:
        name = ""
        for line in response:
            field, _, value = line.decode().rstrip("\n").partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                yield name, json.loads(value)
                if name in ("done", "error"):
                    return
    raise ConnectionError("The stream was cut off.")


def show(title: str, answer: dict[str, Any]) -> None:
    """Print an answer with its chunks and statistics."""
    print(f"\n== {title}\n{answer['response']}")
    if answer["extractive"]:
        print("(quoted from the documents; no model is configured)")
    for entry in answer["context"] or []:
        print(f"  {entry['label']} {entry['source']}: score {entry['score']:.3f}")
    print(f"  {answer['retrieval_stats']}")


def main() -> None:
    """Run the features one by one."""
    show("Nothing but a question", ask("What is pgvector?"))

    show(
        "Every option",
        ask(
            "What is an HNSW index?",
            k=7,
            filters={"category": "technology"},
            temperature=0.5,
            top_p=0.9,
            max_tokens=1024,
            include_context=True,
        ),
    )

    show(
        "A conversation",
        ask(
            "And what does it cost?",
            messages=[
                {"role": "user", "content": "What makes vector search fast?"},
                {"role": "assistant", "content": "An HNSW index."},
            ],
        ),
    )

    show("Without the passages", ask("What is overfitting?", include_context=False))

    print("\n== Streamed")
    for name, data in ask_streaming("How is a sourdough starter fed?", k=3):
        if name == "token":
            print(data["text"], end="", flush=True)
        elif name in ("usage", "error"):
            print(f"\n  {name}: {data}")

    print("\n== What a refusal looks like")
    try:
        ask("Too many passages", k=21)
    except urllib.error.HTTPError as error:
        problem = json.load(error)
        print(f"  {problem['status']} {problem['code']}: {problem['errors']}")


if __name__ == "__main__":
    try:
        main()
    except urllib.error.HTTPError as error:
        raise SystemExit(f"The server refused: {json.load(error).get('detail', error.reason)}") from None
    except OSError as error:
        raise SystemExit(f"No server at {BASE_URL} ({error}). Start it: uv run vectorforge up") from None
