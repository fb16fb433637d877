"""Threads, event loops and the end of the synchronous service."""

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.integration.rag_service.conftest import build, fill, sources
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.client import RAGService
from vectorforge.errors import (
    DatabaseUnavailableError,
)
from vectorforge.local.postgres import EmbeddedPostgres


def test_calls_from_many_threads_run_concurrently(
    postgres_server: EmbeddedPostgres, tenant: str
) -> None:  # C24
    fill(build(postgres_server.app_url, tenant, HashingEmbedder()), tenant)

    class Together(HashingEmbedder):
        """Answers when four calls are waiting; sequential calls would wait forever."""

        barrier = asyncio.Barrier(4)

        async def _call_api(self, texts: Any, model: str) -> Any:
            await self.barrier.wait()
            return await super()._call_api(texts, model)

    with (
        RAGService(build(postgres_server.app_url, tenant, Together())) as service,
        ThreadPoolExecutor(4) as pool,
    ):
        questions = ["cats sleep", "dogs bark", "invoice due", "thirty days"]
        found = list(pool.map(lambda question: service.search_documents(question, limit=1), questions))
    assert [sources(results)[0] for results in found] == ["cats.md", "dogs.md", "tax.md", "tax.md"]


async def test_call_inside_running_event_loop_succeeds(service: RAGService) -> None:  # C24
    assert sources(service.search_documents("cats", limit=1)) == ["cats.md"]
    found = await asyncio.gather(
        *(asyncio.to_thread(service.search_documents, "dogs bark", limit=1) for _ in range(4))
    )
    assert [sources(results) for results in found] == [["dogs.md"]] * 4


@pytest.mark.usefixtures("ctrl_c")
def test_interrupted_call_is_cancelled_and_service_continues(
    postgres_server: EmbeddedPostgres, tenant: str
) -> None:  # C24
    fill(build(postgres_server.app_url, tenant, HashingEmbedder()), tenant)
    slow = SlowOnce()
    with RAGService(build(postgres_server.app_url, tenant, slow)) as service:

        def interrupt() -> None:
            slow.began.wait(10)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            service.search_documents("cats")
        interrupter.join()
        assert slow.cancelled.wait(10)
        assert sources(service.search_documents("cats", limit=1)) == ["cats.md"]


def test_close_ends_running_calls(postgres_server: EmbeddedPostgres, tenant: str) -> None:
    fill(build(postgres_server.app_url, tenant, HashingEmbedder()), tenant)
    slow = SlowOnce()
    service = RAGService(build(postgres_server.app_url, tenant, slow))
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(service.search_documents, "cats")
        assert slow.began.wait(10)
        service.close()
        with pytest.raises(RuntimeError, match="closed"):
            call.result(10)
    service.close()
    with pytest.raises(RuntimeError, match="RAGService is closed"):
        service.search_documents("cats")
    assert "RAGService" not in [thread.name for thread in threading.enumerate()]


def test_unreachable_database_leaves_no_thread(tenant: str) -> None:
    url = "postgresql://vectorforge_app@127.0.0.1:1/nowhere?connect_timeout=1"
    with pytest.raises(DatabaseUnavailableError):
        RAGService(build(url, tenant, HashingEmbedder()))
    assert "RAGService" not in [thread.name for thread in threading.enumerate()]


def test_call_from_service_thread_raises_runtime_error(
    postgres_server: EmbeddedPostgres, tenant: str
) -> None:
    fill(build(postgres_server.app_url, tenant, HashingEmbedder()), tenant)

    class Reentrant(HashingEmbedder):
        async def _call_api(self, texts: Any, model: str) -> Any:
            reentered.search_documents("cats")  # would wait for itself forever

    with (
        RAGService(build(postgres_server.app_url, tenant, Reentrant())) as reentered,
        pytest.raises(RuntimeError, match="cannot wait for itself"),
    ):
        reentered.search_documents("cats")


class SlowOnce(HashingEmbedder):
    """Its first call ends only when canceled."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.cancelled = threading.Event(), threading.Event()

    async def _call_api(self, texts: Any, model: str) -> Any:
        if not self.began.is_set():
            self.began.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
        return await super()._call_api(texts, model)
