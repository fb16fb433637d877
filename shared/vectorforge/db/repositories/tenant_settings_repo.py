"""Settings of a tenant of its own."""

from vectorforge.db.tenant_database import TenantDatabase

_LOG_TEXT = "SELECT log_text FROM vectorforge.tenants WHERE tenant_id = %s"
_SET_LOG_TEXT = """
INSERT INTO vectorforge.tenants (tenant_id, log_text) VALUES (%s, %s)
ON CONFLICT (tenant_id) DO UPDATE SET log_text = EXCLUDED.log_text, updated_at = now()
"""


class TenantSettingsRepository:
    """The settings of one tenant."""

    def __init__(self, db: TenantDatabase) -> None:
        self._db = db

    async def log_text(self) -> str | None:
        """What the query log keeps of the tenant's texts; None: what the server's setting says."""
        row = await self._db.fetch_one(_LOG_TEXT, (self._db.tenant_id,), repeatable=True)
        return row["log_text"] if row else None

    async def set_log_text(self, policy: str | None) -> None:
        """Set it; None goes back to the server's setting. Processes know it within a minute.

        Raises:
            DatabaseError: There is no such policy.
        """
        await self._db.execute(_SET_LOG_TEXT, (self._db.tenant_id, policy), repeatable=True)
