"""The Python client: ingest, query, stream and rate, blocking and asynchronous.

Start the server with `uv run vectorforge up`, then run `uv run python examples/python_client.py`.
``VECTORFORGE_URL`` sets another server, ``VECTORFORGE_API_KEY`` its key.
"""

import asyncio
import os
import sys
from contextlib import closing

from vectorforge.http_client import AsyncVectorForge, ClientError, Done, Token, VectorForge
from vectorforge.http_client.calls import NewDocument
from vectorforge.http_client.errors import ServerUnreachableError

URL = os.environ.get("VECTORFORGE_URL", "http://localhost:8000")
KEY = os.environ.get("VECTORFORGE_API_KEY")
COLLECTION = "python client example"
HANDBOOK: list[NewDocument] = [
    {"source": "refunds.md", "text": "The finance team approves every refund above 500 euros."},
    {"source": "holidays.md", "text": "Everybody has thirty days of paid holidays a year."},
]


def main() -> None:
    """Ingest two texts, query them, and delete them again."""
    with VectorForge(URL, KEY) as client:
        client.collections.create(COLLECTION)
        try:
            job = client.documents.add(COLLECTION, HANDBOOK)
            job = client.jobs.wait(
                job.id, on_progress=lambda job: print(f"{job.status}: {job.documents_done}")
            )
            query_and_rate(client)
            stream(client)
            asyncio.run(query_concurrently())
        finally:
            client.collections.delete(COLLECTION)


def query_and_rate(client: VectorForge) -> None:
    """Print an answer with its sources, and rate it."""
    answer = client.query("Who approves refunds?", collection=COLLECTION, k=2)
    print(answer.response)
    for citation in answer.citations:
        if answer.context is not None:
            print(f"  {answer.context[citation.source_number - 1].source}: {citation.verdict}")
    client.feedback.create(answer.query_id, "up")


def stream(client: VectorForge) -> None:
    """Print an answer while it is generated; leaving the block early would stop it."""
    with closing(client.stream("How many holidays are there?", collection=COLLECTION)) as events:
        for event in events:
            match event:
                case Token(text=text):
                    print(text, end="", flush=True)
                case Done(finish_reason=reason):
                    print(f" ({reason})")
                case _:
                    pass


async def query_concurrently() -> None:
    """Search for several things at once."""
    async with AsyncVectorForge(URL, KEY) as client:
        found = await asyncio.gather(
            *(client.search(query, collection=COLLECTION, top_k=1) for query in ("refunds", "holidays"))
        )
    print([results.results[0].source for results in found])


if __name__ == "__main__":
    try:
        main()
    except ServerUnreachableError:
        sys.exit(f"No server at {URL}. Start it: uv run vectorforge up")
    except ClientError as exc:
        sys.exit(f"{URL}: {exc}")
