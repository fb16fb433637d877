"""Searches that run together: their statements share one transaction and one round trip."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from vectorforge.db.tenant_database import Call, Params, TenantDatabase
from vectorforge.vectorstore.search.search import SEARCH_BATCH

T = TypeVar("T")


async def search_together(searches: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Run searches of one tenant concurrently and return their results.

    A statement waits until every search has one or has ended; then all are sent at once. A search whose
    first statement does not suffice sends another one, with the others that do.

    Raises:
        VectorForgeError: A search failed; all have ended.
    """
    batch = StatementBatch(len(searches))
    token = SEARCH_BATCH.set(batch.fetch_all)
    try:
        results = await asyncio.gather(*map(batch.run, searches), return_exceptions=True)
    finally:
        SEARCH_BATCH.reset(token)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


class StatementBatch:
    """Collects the statements of a number of searches.

    Args:
        searches: Their number.
    """

    def __init__(self, searches: int) -> None:
        self._running = searches
        self._waiting: list[tuple[TenantDatabase, Call, asyncio.Future[list[dict[str, Any]]]]] = []

    async def run(self, search: Callable[[], Awaitable[T]]) -> T:
        """Run one of the searches."""
        try:
            return await search()
        finally:
            self._running -= 1
            await self._send_if_complete()

    async def fetch_all(self, db: TenantDatabase, statement: str, params: Params) -> list[dict[str, Any]]:
        """Return the rows of a statement, which is sent with those of the other searches.

        Raises:
            As ``TenantDatabase.run``.
        """
        future: asyncio.Future[list[dict[str, Any]]] = asyncio.get_running_loop().create_future()
        self._waiting.append((db, (statement, params), future))
        await self._send_if_complete()
        return await future

    async def _send_if_complete(self) -> None:
        if not self._waiting or len(self._waiting) < self._running:
            return
        waiting, self._waiting = self._waiting, []
        # by database: a search may need the writer where a read replica answers the others
        for db in dict.fromkeys(db for db, *_ in waiting):
            await _send(db, [(call, future) for other, call, future in waiting if other is db])


async def _send(
    db: TenantDatabase, waiting: Sequence[tuple[Call, asyncio.Future[list[dict[str, Any]]]]]
) -> None:
    try:
        outcomes = await db.run([call for call, _ in waiting], repeatable=True)
    except Exception as exc:  # noqa: BLE001 - raised by each search
        for _, future in waiting:
            if not future.done():
                future.set_exception(exc)
        return
    for (_, future), (rows, _) in zip(waiting, outcomes, strict=True):
        if not future.done():
            future.set_result(rows)
