"""Which job a worker takes next, whoever it belongs to."""

from typing import NamedTuple
from uuid import UUID

from vectorforge.db.connection import Database

_CLAIM = """
SELECT claimed_tenant_id, claimed_job_id, claims_without_progress
FROM vectorforge.claim_ingestion_job(make_interval(secs => %s))
"""
_DELETE_OLD_LOGS = "SELECT vectorforge.delete_old_logs(make_interval(days => %s)) AS deleted"
_DELETE_EXPIRED_CACHES = "SELECT vectorforge.delete_expired_caches(make_interval(secs => %s)) AS deleted"
_DELETE_EXPIRED_STREAMS = "SELECT vectorforge.delete_expired_streams() AS deleted"
_ERASE_OLD_TEXTS = "SELECT vectorforge.erase_old_log_texts(make_interval(days => %s)) AS erased"
_OTHERS_WAIT = "SELECT vectorforge.other_tenants_wait(%s) AS found"


class ClaimedJob(NamedTuple):
    """A job that this worker has to carry out now."""

    tenant_id: str
    job_id: UUID
    claims: int
    """Claims since one of its documents last came to an end, with this one; 1 at first."""


class JobDispatcher:
    """Hands out the jobs of all tenants; it learns no more of a job than its id and its tenant."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, lease_s: float = 60.0) -> ClaimedJob | None:
        """Take the next job, for as long as its lease lasts; ``JobRepository.heartbeat`` prolongs it.

        A job whose lease has run out (its worker was killed) is taken over, with the items it had begun.
        Tenants with fewer running jobs come first, then those whose last turn is longer ago, then older jobs.
        Of one collection only the oldest job that has not ended is handed out, and beside it jobs of a single
        document each (see ``JobRepository.create``), of different ones.

        Args:
            lease_s: Seconds until another worker may take it over, more than 0 and at most 86,400.

        Returns:
            The job, now running; None when no job waits.
        """
        row = await self._database.fetch_untenanted(_CLAIM, (lease_s,))
        return ClaimedJob(*row.values()) if row else None

    async def delete_old_logs(self, kept_days: int) -> None:
        """Delete queries and ended jobs older than this many days, at least 1, of all tenants."""
        while (row := await self._database.fetch_untenanted(_DELETE_OLD_LOGS, (kept_days,))) and row[
            "deleted"
        ]:
            pass

    async def erase_old_log_texts(self, kept_days: int) -> None:
        """Empty questions and answers older than this many days, at least 1, of all tenants.

        Tombstones of erased passages that are too old to be of use go as well.
        """
        while (row := await self._database.fetch_untenanted(_ERASE_OLD_TEXTS, (kept_days,))) and row[
            "erased"
        ]:
            pass

    async def delete_expired_caches(self, stale_s: float) -> None:
        """Delete vectors that have expired, and answers that have for this long, of all tenants."""
        while (row := await self._database.fetch_untenanted(_DELETE_EXPIRED_CACHES, (stale_s,))) and row[
            "deleted"
        ]:
            pass

    async def delete_expired_streams(self) -> None:
        """Delete streamed answers whose time is over, of all tenants."""
        while (row := await self._database.fetch_untenanted(_DELETE_EXPIRED_STREAMS)) and row["deleted"]:
            pass

    async def any_waits(self) -> bool:
        """Whether a job of any tenant could be claimed now."""
        return await self.others_wait("")  # no tenant's name is empty

    async def others_wait(self, tenant_id: str) -> bool:
        """Whether a job of another tenant could be claimed now."""
        row = await self._database.fetch_untenanted(_OTHERS_WAIT, (tenant_id,))
        return bool(row and row["found"])
