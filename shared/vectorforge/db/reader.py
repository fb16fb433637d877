"""Read replicas that answer searches: their pool, the changes that they must have, and their failures.

A search's rows carry the version of its collection, so a replica needs no other proof of what it has
replayed: this works on any kind of replica, through any proxy, without session state. Imported only with the
setting.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar
from uuid import UUID

from vectorforge.db.connection import Database
from vectorforge.db.errors import translated_errors
from vectorforge.db.tenant_database import TenantDatabase, due_check
from vectorforge.errors import InvalidInputError, VectorForgeError
from vectorforge.telemetry import MetricsCollector

logger = logging.getLogger(__name__)

Rows = TypeVar("Rows", bound=Sequence[Any])

TIMEOUT_S: Final = 3.0
"""Time limit of a connection and of a statement of a replica: after that the writer answers."""
_CATCH_UP_S: Final = 0.02
"""Pause before the second attempt; a replica of Aurora is 10 to 20 ms behind."""
_PAUSE_S: Final = 5.0
_MOST_STALE: Final = 3
_LONGEST_QUERY_S: Final = 60.0
"""Longest time between the look-up of a query and its search."""
_MAX_TENANTS: Final = 10_000
_MAX_COLLECTIONS: Final = 10_000
_CONFLICT: Final = "40001"
"""SQLSTATE of a statement canceled by replay, which says nothing about the next one."""


@dataclass(slots=True)
class _KnownVersions:
    needed: int = 0
    noted: int = 0
    """Version on the writer at ``noted_at``."""
    noted_at: float = float("-inf")
    required_at: float = float("-inf")
    """Time of the last search that needed the writer's own version."""


class CollectionVersions:
    """Versions of collections that replicas must have, by what this process wrote and read on the writer.

    Args:
        lag_s: See ``DatabaseSettings.database_reader_lag_s``.
    """

    def __init__(self, lag_s: float) -> None:
        # A change is noted within two steps, and needed within two more; see ``needed``.
        self._step_s = lag_s / 4
        self._written_at: OrderedDict[str, float] = OrderedDict()
        self._collections: OrderedDict[UUID, _KnownVersions] = OrderedDict()

    def note_write(self, tenant_id: str) -> None:
        """Note that this process has just written to the tenant's documents."""
        self._written_at[tenant_id] = time.monotonic()
        self._written_at.move_to_end(tenant_id)
        if len(self._written_at) > _MAX_TENANTS:
            self._written_at.popitem(last=False)

    def needed(self, tenant_id: str, collection_id: UUID, current: int, *, at_least: int = 0) -> int:
        """Return the oldest version that a replica may have for a query.

        After a write of this process it is the writer's version, until that was read after the write. Else
        it is the writer's version of a moment ago, or the current one if none was noted then.

        Args:
            tenant_id: The tenant.
            collection_id: The tenant's collection.
            current: Its version on the writer, read for this query.
            at_least: Version that the caller demands.
        """
        known = self._collections.setdefault(collection_id, _KnownVersions())
        self._collections.move_to_end(collection_id)
        if len(self._collections) > _MAX_COLLECTIONS:
            self._collections.popitem(last=False)
        now = time.monotonic()
        written_at = self._written_at.get(tenant_id, float("-inf"))
        age_s = now - known.noted_at
        if known.required_at <= written_at + _LONGEST_QUERY_S or age_s >= 2 * self._step_s:
            known.needed, known.required_at = max(known.needed, current), now
            known.noted, known.noted_at = current, now
        elif age_s >= self._step_s:
            known.needed = max(known.needed, known.noted)
            known.noted, known.noted_at = current, now
        return max(known.needed, at_least)


class ReaderDatabase(TenantDatabase):
    """A tenant's database on a read replica."""

    _enter: ClassVar[str] = "SELECT vectorforge.enter_reader(%s)"


class Reader:
    """Read replicas of one database, behind one host. Belongs to the event loop that opened it.

    Args:
        database: Pool of connections to the replicas, not open.
        lag_s: See ``CollectionVersions``.
        metrics: Collector of ``database.reader.searches``.

    Attributes:
        pause_s: Time for which no search tries replicas that failed, or that were too old several times in a
            row.
    """

    def __init__(self, database: Database, *, lag_s: float, metrics: MetricsCollector) -> None:
        self.pause_s = _PAUSE_S
        self.database = database
        self.versions = CollectionVersions(lag_s)
        self.lag_s = lag_s
        self._metrics = metrics
        self._is_up = False
        self._opening: asyncio.Task[None] | None = None
        self._retry_at = float("-inf")
        self._stale_in_a_row = 0

    def begin_opening(self) -> None:
        """Open the pool in the background; until then the writer answers."""
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._try_to_open())

    async def open(self) -> None:
        """Open the pool, or check that a connection of it is alive; raises as ``Database.open``."""
        await self.database.open()
        with translated_errors():
            async with self.database.connection():
                self._is_up = True

    async def close(self) -> None:
        """Close every connection; ``open`` may be called again."""
        self._is_up = False
        if self._opening is not None:
            self._opening.cancel()
            with suppress(asyncio.CancelledError):
                await self._opening
        await self.database.close()

    async def fetch(
        self,
        writer: TenantDatabase,
        fetch: Callable[[TenantDatabase], Awaitable[Rows]],
        suffices: Callable[[Rows], bool],
    ) -> Rows:
        """Return the rows of a replica, or those of the writer if a replica fails or is too old twice.

        Args:
            writer: The tenant's database.
            fetch: Runs the statement on a database.
            suffices: Returns True if a replica's rows are recent enough.

        Raises:
            VectorForgeError: The writer failed, or the statement's values are invalid.
        """
        outcome = "unavailable"
        for attempt in range(2):
            if not self._may_try():
                break
            if attempt:
                await asyncio.sleep(_CATCH_UP_S)
            try:
                rows = await fetch(ReaderDatabase(self.database, writer.tenant_id))
            except InvalidInputError:
                raise
            except VectorForgeError as exc:
                outcome = "failed"
                self._note_failure(exc)
                break
            if suffices(rows):
                self._stale_in_a_row = 0
                answered = "retried" if attempt else "answered"
                self._metrics.increment("database.reader.searches", tags={"outcome": answered})
                return rows
            outcome = "stale"
        if outcome == "stale":
            self._note_stale()
        self._metrics.increment("database.reader.searches", tags={"outcome": outcome})
        return await fetch(writer)

    def _may_try(self) -> bool:
        # A replica may not know yet that a key was revoked, so it may not be the first to check it.
        if due_check() is not None or time.monotonic() < self._retry_at:
            return False
        if not self._is_up:
            self.begin_opening()
        return self._is_up

    async def _try_to_open(self) -> None:
        try:
            await self.open()
        except VectorForgeError as exc:
            self._note_failure(exc)

    def _note_failure(self, failure: VectorForgeError) -> None:
        if getattr(failure.__cause__, "sqlstate", None) != _CONFLICT:
            self._is_up = False  # checked in the background after the pause, at the cost of no query
            self._pause(failure.message)

    def _note_stale(self) -> None:
        self._stale_in_a_row += 1
        if self._stale_in_a_row >= _MOST_STALE:
            self._stale_in_a_row = 0
            self._pause("It lags behind the writer.")

    def _pause(self, reason: str) -> None:
        if time.monotonic() >= self._retry_at:
            logger.warning(
                "The writer answers searches for %g s in place of replicas: %s", self.pause_s, reason
            )
        self._retry_at = time.monotonic() + self.pause_s
