"""Search settings of a collection, with their checks, and settings of a tenant."""

from typing import Any

from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import InvalidInputError
from vectorforge.types import SearchSettings

_LANGUAGES = """
SELECT cfgname::text AS name FROM pg_catalog.pg_ts_config
WHERE cfgnamespace = 'pg_catalog'::regnamespace ORDER BY 1
"""

# FOR UPDATE, which waits for writers of documents: they have read words by the language of before, and none
# may come to light after a worker has read everything by the new one.
SET_SEARCH = """
WITH held AS (
    SELECT id, language, keeps_words OR coalesce(%(keeps_words)s, false)
        OR coalesce(%(search_mode)s, search_mode) <> 'dense' AS keeps_words
    FROM vectorforge.collections
    WHERE tenant_id = %(tenant_id)s AND id = %(id)s FOR UPDATE
), changed AS (
    UPDATE vectorforge.collections AS c
    SET search_mode = coalesce(%(search_mode)s, c.search_mode),
        dense_weight = coalesce(%(dense_weight)s, c.dense_weight),
        language = coalesce(%(language)s, c.language),
        keeps_words = held.keeps_words,
        terms_complete = NOT held.keeps_words OR c.terms_complete AND c.keeps_words
            AND coalesce(%(language)s, c.language) = c.language,
        terms_cursor = CASE
            WHEN c.keeps_words AND coalesce(%(language)s, c.language) = c.language THEN c.terms_cursor
        END,
        data_version = c.data_version + 1
    FROM held WHERE c.tenant_id = %(tenant_id)s AND c.id = held.id
    RETURNING c.*
)
SELECT {columns} FROM changed
"""
"""Parameters: a list of columns, and the values of ``checked_settings`` with ``tenant_id`` and ``id``."""


async def checked_settings(db: TenantDatabase, settings: SearchSettings) -> dict[str, Any]:
    """Return the settings by name, None where one is not to be set.

    Raises:
        InvalidInputError: ``dense_weight`` is not within 0 to 1, or ``language`` is not among ``languages``.
    """
    weight, language = settings.dense_weight, settings.language
    if weight is not None and not 0 <= weight <= 1:
        raise InvalidInputError("dense_weight must be between 0 and 1.", field="dense_weight")
    if language is not None and language not in (known := await languages(db)):
        raise InvalidInputError(f"language must be one of: {', '.join(known)}.", field="language")
    return {
        "search_mode": settings.search_mode and settings.search_mode.value,
        "dense_weight": weight,
        "language": language,
        "keeps_words": settings.keeps_words,
    }


async def languages(db: TenantDatabase) -> list[str]:
    """Return the names of this PostgreSQL's text search configurations."""
    return [row["name"] for row in await db.fetch_all(_LANGUAGES)]


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
        """Return the tenant's policy for texts in the query log; None for the server's setting."""
        row = await self._db.fetch_one(_LOG_TEXT, (self._db.tenant_id,), repeatable=True)
        return row["log_text"] if row else None

    async def set_log_text(self, policy: str | None) -> None:
        """Set the policy; None restores the server's setting. Processes apply it within a minute.

        Raises:
            DatabaseError: There is no such policy.
        """
        await self._db.execute(_SET_LOG_TEXT, (self._db.tenant_id, policy), repeatable=True)
