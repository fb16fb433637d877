"""The query service's collaborators, in memory."""

import asyncio
from uuid import UUID

from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.types import Collection


class OneCollection:
    """A repository of one collection."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection

    async def find_by_id(self, collection_id: UUID) -> Collection | None:
        """The collection, if that is its id."""
        return self.collection if collection_id == self.collection.id else None


class LogList:
    """A query log in a list.

    Args:
        error: Raised instead of storing a record.
    """

    def __init__(self, error: Exception | None = None) -> None:
        self.rows: list[QueryLog] = []
        self.started: list[QueryLog] = []
        self.error = error
        self.delay_s = 0.0
        """Seconds that storing each final record takes."""
        self.start_error: Exception | None = None
        self.start_delay_s = 0.0

    async def start(self, query_log: QueryLog) -> None:
        """Store the record separately from the final records."""
        await asyncio.sleep(self.start_delay_s)
        if self.start_error is not None:
            raise self.start_error
        self.started.append(query_log)

    async def create(self, query_log: QueryLog) -> None:
        """Store the record."""
        await asyncio.sleep(self.delay_s)
        if self.error is not None:
            raise self.error
        self.rows.append(query_log)
