"""Which job a worker takes next, whoever it belongs to."""

from uuid import UUID

from vectorforge.db.connection import Database

_CLAIM = """
SELECT claimed_tenant_id, claimed_job_id FROM vectorforge.claim_ingestion_job(make_interval(secs => %s))
"""


class JobDispatcher:
    """Hands out the jobs of all tenants; it learns no more of a job than its id and its tenant."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, lease_s: float = 60.0) -> tuple[str, UUID] | None:
        """Take the next job, for as long as its lease lasts; ``JobRepository.heartbeat`` prolongs it.

        A job whose lease has run out (its worker was killed) is taken over, with the items it had begun.
        Tenants with fewer running jobs come first, then older jobs.

        Args:
            lease_s: Seconds until another worker may take it over, more than 0 and at most 86,400.

        Returns:
            Tenant and job, now running; None when no job waits.
        """
        row = await self._database.fetch_untenanted(_CLAIM, (lease_s,))
        return (row["claimed_tenant_id"], row["claimed_job_id"]) if row else None
