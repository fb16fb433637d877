"""Lease of claimed jobs, renewed while they run; without it, another worker claims them."""

import asyncio
import time
from collections.abc import Sequence
from uuid import UUID

from vectorforge.db.repositories.job_repo import JobRepository
from vectorforge.ingestion.types import IngestionStage

_BEAT_S = 1.0
_BEATS_A_LEASE = 3


class LeaseLostError(Exception):
    """Another worker may have claimed the jobs; nothing more must be written for them."""


class JobLease:
    """Lease of jobs that this process has claimed.

    Args:
        lease_s: Seconds for which they are claimed.
        claimed_at: Monotonic time before the claim was sent; its answer may be late.
    """

    def __init__(
        self, jobs: JobRepository, job_ids: Sequence[UUID], lease_s: float, claimed_at: float
    ) -> None:
        self._jobs = jobs
        self._lease_s = lease_s
        self._held_until = claimed_at + lease_s
        self.job_ids = list(job_ids)
        """Those that have not ended, in their order."""
        self.stage: tuple[UUID, int, IngestionStage] | None = None
        """Job, ordinal and stage of the running document, stored with the beats."""

    @property
    def is_held(self) -> bool:
        """False once the lease has expired, e.g. because the process was suspended."""
        return time.monotonic() < self._held_until

    def check(self) -> None:
        """Raise ``LeaseLostError`` if the lease has expired."""
        if not self.is_held:
            raise LeaseLostError

    async def beat(self) -> None:
        """Renew the lease until canceled, and store stages that last long enough to be seen.

        Raises:
            LeaseLostError: The lease has expired, another worker has claimed a job, or it was deleted.
        """
        written = self.stage
        next_beat = time.monotonic() + self._lease_s / _BEATS_A_LEASE
        while True:
            # Also while a renewal waits for its answer: the work must end before another worker begins it.
            try:
                async with asyncio.timeout(self._held_until - time.monotonic()):
                    await asyncio.sleep(min(_BEAT_S, self._lease_s / _BEATS_A_LEASE))
                    if self.stage is not None and self.stage != written:
                        written = self.stage
                        await self._jobs.set_stage(*self.stage)
                    if time.monotonic() >= next_beat:
                        next_beat = await self._renew()
            except TimeoutError:
                raise LeaseLostError from None

    async def _renew(self) -> float:
        """Extend the lease; return the time of the next extension."""
        sent_at = time.monotonic()
        running = await self._jobs.heartbeat(*self.job_ids, lease_s=self._lease_s)
        if not running.issuperset(self.job_ids):  # without those that have ended meanwhile
            self._held_until = 0.0
            raise LeaseLostError
        self._held_until = sent_at + self._lease_s
        return sent_at + self._lease_s / _BEATS_A_LEASE
