"""What is kept of a query at its end, beside its record: its answer, and the vector of its question."""

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from vectorforge.errors import VectorForgeError
from vectorforge.types import Collection, Vector

if TYPE_CHECKING:
    from vectorforge.db.tenant_database import TenantDatabase
    from vectorforge.db.types import Call
    from vectorforge.limits.admission import Admission
    from vectorforge.pipeline.answer_cache.cache import AnswerCache
    from vectorforge.pipeline.run import QueryRun

logger = logging.getLogger(__name__)

KEEP_TIMEOUT_S = 1.0
"""For the database: without a cache there would be no such wait."""


class QueryVectorStore(Protocol):
    """Where vectors of questions are kept; ``QueryVectorRepository``."""

    def end_write(self, collection: Collection, query: str, vector: Vector) -> "Call":
        """The statement that keeps a vector."""
        ...


class QueryEndWrites:
    """Says what is to be kept of a query, as statements that go with the query's record or without it.

    Args:
        db: Of the tenant.
        answers: Of the same tenant; None: answers are not kept.
        vectors: Of the same tenant; None: vectors are not kept.
        admission: Of the query's request: what it used is settled. None: it has no limits.
    """

    def __init__(
        self,
        db: "TenantDatabase",
        *,
        answers: "AnswerCache | None",
        vectors: QueryVectorStore | None,
        admission: "Admission | None" = None,
    ) -> None:
        self._db = db
        self._admission = admission
        self._answers = answers
        self._vectors = vectors

    def statements(self, run: "QueryRun") -> "list[Call]":
        """What keeps the vector that the query's search made, and its answer; may be run twice.

        And what settles the query's tokens and cost: of those whom a cached answer spares, nothing.
        """
        calls: list[Call] = []
        if self._admission is not None:
            calls += self._admission.settling(run.used_tokens, run.cost_usd if run.used_tokens else None)
        if self._vectors is not None and run.known is not None and run.known.made is not None:
            calls.append(self._vectors.end_write(*run.known.made))
        if self._answers is not None:
            calls += self._answers.end_write(run)
        return calls

    def confirm(self) -> None:
        """Note that what ``statements`` gave was committed."""
        if self._admission is not None:
            self._admission.confirm()

    async def run(self, calls: "Sequence[Call]") -> None:
        """Run the statements in a transaction of their own. Never raises, except to go on being cancelled."""
        try:
            async with asyncio.timeout(KEEP_TIMEOUT_S):
                await self._db.execute_all(calls, repeatable=True)
            self.confirm()
        except (VectorForgeError, TimeoutError) as exc:
            reason = exc.message if isinstance(exc, VectorForgeError) else type(exc).__name__
            logger.warning("The answer was not kept: %s", reason)
