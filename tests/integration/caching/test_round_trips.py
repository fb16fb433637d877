"""Round trips to the database for cached answers."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import httpx2

from tests.integration.caching.conftest import GUIDES, LONG, Process, Start, ask
from tests.support.http.live_api import (
    add_documents,
    new_collection,
)
from tests.support.postgres.pin_detector import PinDetector

Ask = Callable[[httpx2.AsyncClient, str], Awaitable[Any]]


async def ask_query(client: httpx2.AsyncClient, query: str) -> Any:
    return await ask(client, query=query)


async def round_trips(
    detector: PinDetector, client: httpx2.AsyncClient, questions: list[str], ask: Ask = ask_query
) -> int:
    """Return the fewest transactions of one query, since workers poll for jobs meanwhile."""

    def count() -> int:
        return detector.messages["Sync"]  # each is one pipeline, which ends with it

    found = []
    for question in questions:
        before = count()
        await ask(client, question)
        found.append(count() - before)
    return min(found)


async def test_query_round_trips_match_cache_configuration(
    start: Start, tenants: tuple[str, str], pin_detector: PinDetector
) -> None:
    miss: dict[str, int] = {}
    again: dict[str, int] = {}
    processes = {
        "off": await start(answer_cache=False, embedding_cache_ttl_s=0),
        "vectors": await start(answer_cache=False),
        "both": await start(),
    }
    async with processes["off"].client(tenants[0]) as client:
        await add_documents(client, await new_collection(client), **GUIDES)
    for name, process in processes.items():
        async with process.client(tenants[0]) as client:
            await ask(client, query=f"Warm up {name}")  # connections are opened
            questions = [f"Dough {name} {number}?" for number in range(4)]
            miss[name] = await round_trips(pin_detector, client, questions)
            again[name] = await round_trips(pin_detector, client, questions)
    # look-up, row of the start (N7), search, log
    assert miss["off"] == again["off"] == 4
    assert miss["vectors"] == again["vectors"] == 4  # read with the collection, stored with the log
    assert miss["both"] == 4  # so are answers
    assert again["both"] == 2  # look-up, log


OTHER_SURFACES: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "chat": (
        "/v1/chat/completions",
        lambda query: {"model": "vectorforge", "messages": [{"role": "user", "content": query}]},
    ),
    "docrag": (
        "/v1/docrag/query",
        lambda query: {"query": query, "collection": "default", "min_score": None},
    ),
    "profiles": ("/v1/profiles/1/query", lambda query: {"query": query}),
    "mcp": (
        "/mcp",
        lambda query: {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "ask", "arguments": {"query": query}},
        },
    ),
}


async def ask_surface(name: str, client: httpx2.AsyncClient, query: str) -> None:
    path, body_of = OTHER_SURFACES[name]
    response = await client.post(path, json=body_of(query))
    assert response.status_code == 200, response.text
    assert LONG in response.text


async def test_query_on_each_api_surface_takes_four_round_trips(
    process: Process, client: httpx2.AsyncClient, pin_detector: PinDetector
) -> None:
    (await client.put("/v1/profiles/1", json={"profile_summary": GUIDES["bread"]})).raise_for_status()
    found: dict[str, int] = {}
    for name in OTHER_SURFACES:
        ask_it = partial(ask_surface, name)
        await ask_it(client, f"Warm up {name}")
        questions = [f"Dough {name} {number}?" for number in range(4)]
        found[name] = await round_trips(pin_detector, client, questions, ask_it)
    assert found == dict.fromkeys(OTHER_SURFACES, 4)  # look-up, start, search, log
