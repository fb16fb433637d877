"""Chunks reranked over HTTP, and left unchanged on failure."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from pydantic import SecretStr

from tests.support.rag.chunks import make_chunk
from tests.support.vendors.fake_reranker import FakeReranker
from vectorforge.deadline import Deadline
from vectorforge.errors import DeadlineExceededError
from vectorforge.retriever.base import BaseRetriever, RetrievalRequest, RetrievedChunks
from vectorforge.retriever.rerank import HttpReranker, RerankFormat, RerankingRetriever
from vectorforge.vendors.credentials import FixedCredentials, KeyOrigin

COLLECTION = uuid4()
PATHS: dict[RerankFormat, str] = {"cohere": "/v2/rerank", "tei": "/rerank"}
TEXTS = ["about dogs", "about cats", "cats sleep a lot"]


class Fixed(BaseRetriever):
    """Finds the same chunks for every query."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self.asked: list[RetrievalRequest] = []

    async def find(self, request: RetrievalRequest) -> RetrievedChunks:
        self.asked.append(request)
        found = [make_chunk(text, score=0.9 - n / 1000) for n, text in enumerate(self.texts)]
        passages = RetrievedChunks(found[: request.top_k])
        passages.matched = 77
        return passages


class Rotated:
    """A key that is replaced when rejected."""

    def __init__(self, old: str, new: str) -> None:
        self.keys = [old, new]

    @property
    def origin(self) -> KeyOrigin:
        return KeyOrigin.SECRET

    async def current(self) -> SecretStr:
        return SecretStr(self.keys[0])

    async def refresh(self, refused: SecretStr) -> SecretStr:
        self.keys = self.keys[-1:]
        return await self.current()


@pytest.fixture
async def server() -> AsyncIterator[FakeReranker]:
    async with FakeReranker() as running:
        yield running


def reranker(server: FakeReranker, shape: RerankFormat = "cohere", **options: Any) -> HttpReranker:
    options = {"model": "rerank-v3.5", "api_key": FixedCredentials(server.api_key), **options}
    return HttpReranker(server.origin + PATHS[shape], shape=shape, **options)


async def ask(retriever: BaseRetriever, top_k: int = 2, **options: Any) -> list[str]:
    found = await retriever.retrieve("when do cats sleep", COLLECTION, top_k, **options)
    return [chunk.chunk.text for chunk in found]


@pytest.mark.parametrize("shape", ["cohere", "tei"])
async def test_reranker_returns_best_of_more_candidates(server: FakeReranker, shape: RerankFormat) -> None:
    inner, made = Fixed(TEXTS), reranker(server, shape)
    retriever = RerankingRetriever(inner, made, candidates=20, max_top_k=100)
    query = "when do cats sleep"
    found = await retriever.retrieve(query, COLLECTION, 2, {"a": 1}, 0.3, "local", profile_id=7)
    assert [chunk.chunk.text for chunk in found] == ["cats sleep a lot", "about cats"]
    assert [chunk.relevance for chunk in found] == [0.5, 0.25]
    assert found[0].score == pytest.approx(0.898)
    assert found.matched == 77
    assert inner.asked == [RetrievalRequest(query, COLLECTION, 20, {"a": 1}, 0.3, "local", profile_id=7)]
    await made.aclose()


@pytest.mark.parametrize("shape", ["cohere", "tei"])
async def test_reranker_splits_requests_at_tei_batch_limit(server: FakeReranker, shape: RerankFormat) -> None:
    texts = [f"number {n}" for n in range(70)] + ["cats sleep"]
    made = reranker(server, shape)
    retriever = RerankingRetriever(Fixed(texts), made, candidates=80)
    assert (await ask(retriever, 3)) == ["cats sleep", "number 0", "number 1"]
    assert len(server.bodies) == {"cohere": 1, "tei": 3}[shape]
    await made.aclose()


def _wrong(body: Any) -> web.Response:
    return web.json_response(body)


@pytest.mark.parametrize(
    "reply",
    [
        None,
        web.Response(status=500, text="canary"),
        web.Response(status=200, text="not json"),
        _wrong({"results": [{"index": 0, "relevance_score": 0.1}]}),
        _wrong({"results": [{"index": n + 1, "relevance_score": 0.1} for n in range(3)]}),
        _wrong({"results": [{"index": n, "relevance_score": "NaN"} for n in range(3)]}),
        _wrong({"results": [None, 1, "x"]}),
        _wrong({"message": "canary"}),
        _wrong(3),
    ],
)
async def test_reranker_failure_preserves_search_order(
    server: FakeReranker, caplog: pytest.LogCaptureFixture, reply: web.Response | None
) -> None:
    server.replies.append(reply)
    made = reranker(server)
    assert await ask(RerankingRetriever(Fixed(TEXTS), made)) == TEXTS[:2]
    assert "The chunks were not reranked" in caplog.text
    assert "canary" not in caplog.text
    assert server.api_key not in caplog.text
    await made.aclose()


async def test_slow_reranker_times_out_with_search_order(
    server: FakeReranker, caplog: pytest.LogCaptureFixture
) -> None:
    server.delay_s = 30
    made = reranker(server)
    assert await ask(RerankingRetriever(Fixed(TEXTS), made, timeout_s=0.05)) == TEXTS[:2]
    assert "TimeoutError" in caplog.text
    patient = RerankingRetriever(Fixed(TEXTS), made, timeout_s=60)
    assert await ask(patient, deadline=Deadline.after(0.1)) == TEXTS[:2]
    with pytest.raises(DeadlineExceededError):
        await ask(patient, deadline=Deadline.after(-1))
    task = asyncio.create_task(ask(patient))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await made.aclose()


async def test_rotated_reranker_key_is_used_after_rejection(
    server: FakeReranker, caplog: pytest.LogCaptureFixture
) -> None:
    rotated = reranker(server, api_key=Rotated("old-key", server.api_key))
    assert (await ask(RerankingRetriever(Fixed(TEXTS), rotated)))[0] == "cats sleep a lot"
    assert len(server.bodies) == 2
    wrong = reranker(server, api_key=FixedCredentials("wrong-key"))
    with caplog.at_level(logging.WARNING):
        assert await ask(RerankingRetriever(Fixed(TEXTS), wrong)) == TEXTS[:2]
    assert "status 401" in caplog.text
    assert "wrong-key" not in caplog.text
    assert len(server.bodies) == 3
    await rotated.aclose()
    await wrong.aclose()


async def test_reranker_without_key_sends_no_authorization() -> None:
    async with FakeReranker(api_key="") as open_to_all:
        made = reranker(open_to_all, "tei", api_key=None)
        assert (await ask(RerankingRetriever(Fixed(TEXTS), made)))[0] == "cats sleep a lot"
        await made.aclose()


async def test_single_chunk_is_not_reranked(server: FakeReranker) -> None:
    made = reranker(server)
    assert await ask(RerankingRetriever(Fixed(TEXTS[:1]), made)) == TEXTS[:1]
    assert server.bodies == []
    await made.aclose()
