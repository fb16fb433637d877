"""Lease of a claimed job, renewed while it runs; without it, another worker claims the job."""

import asyncio
import time
from uuid import UUID

from vectorforge.db.repositories.job_repo import JobRepository
from vectorforge.ingestion.types import IngestionStage

_BEAT_S = 1.0
_BEATS_A_LEASE = 3


class LeaseLostError(Exception):
    """Another worker may have claimed the job; nothing more must be written for it."""


class JobLease:
    """Lease of one job, from now on.

    Args:
        jobs: Jobs of the tenant.
        job_id: Job that this process has claimed.
        lease_s: Seconds for which it is claimed.
    """

    def __init__(self, jobs: JobRepository, job_id: UUID, lease_s: float) -> None:
        self._jobs = jobs
        self._job_id = job_id
        self._lease_s = lease_s
        self._held_until = time.monotonic() + lease_s
        self.stage: tuple[int, IngestionStage] | None = None
        """Ordinal and stage of the running document, stored with the beats."""

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
            LeaseLostError: Another worker has claimed the job, or it was deleted.
        """
        written = self.stage
        next_beat = time.monotonic() + self._lease_s / _BEATS_A_LEASE
        while True:
            await asyncio.sleep(min(_BEAT_S, self._lease_s / _BEATS_A_LEASE))
            if self.stage is not None and self.stage != written:
                written = ordinal, stage = self.stage
                await self._jobs.set_stage(self._job_id, stage)
                await self._jobs.set_stage(self._job_id, stage, ordinal=ordinal)
            if time.monotonic() >= next_beat:
                self.check()
                sent_at = time.monotonic()
                if not await self._jobs.heartbeat(self._job_id, self._lease_s):
                    self._held_until = 0.0
                    raise LeaseLostError
                self._held_until = sent_at + self._lease_s
                next_beat = sent_at + self._lease_s / _BEATS_A_LEASE
