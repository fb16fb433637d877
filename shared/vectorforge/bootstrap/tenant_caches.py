"""Caches of one tenant: answers and query vectors, as the settings define."""

from functools import cached_property
from typing import TYPE_CHECKING

from vectorforge.db.repositories.answer_cache_repo import AnswerCacheRepository
from vectorforge.db.repositories.query_lookup_repo import QueryLookupRepository, QueryVectorRepository
from vectorforge.db.repositories.settings_repo import TenantSettingsRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.pipeline.answer_cache.cache import AnswerCache
from vectorforge.pipeline.guardrails.log_text import LogTexts
from vectorforge.pipeline.query_log import QueryEndWrites
from vectorforge.pipeline.stored_answer import MemoryFirst

if TYPE_CHECKING:
    from vectorforge.bootstrap.shared import Shared
    from vectorforge.limits.admission import Admission

_LOG_POLICY_TIMEOUT_S = 0.1
"""A longer wait would keep the record from reaching the queue in time."""


class TenantCaches:
    """Caches of one tenant."""

    def __init__(
        self, application: "Shared", db: TenantDatabase, admission: "Admission | None" = None
    ) -> None:
        self._application = application
        self._admission = admission
        self._settings = application.config.cache
        self._db = db

    @cached_property
    def query_vectors(self) -> QueryVectorRepository | None:
        """Cache of query vectors; None if disabled."""
        ttl_s = self._settings.embedding_cache_ttl_s
        if not ttl_s:
            return None
        return QueryVectorRepository(self._db, settings=self._application.settings_digest, ttl_s=ttl_s)

    @cached_property
    def shared_answers(self) -> AnswerCacheRepository:
        """Cached answers shared by all processes."""
        return AnswerCacheRepository(
            self._db, ttl_s=self._settings.answer_cache_ttl_s, stale_s=self._settings.answer_cache_stale_s
        )

    @cached_property
    def answer_cache(self) -> AnswerCache | None:
        """Cached answers of this process and the shared ones; None if disabled."""
        if not self._settings.answer_cache:
            return None
        store = MemoryFirst(
            self._application.answer_memory,
            self.shared_answers,
            self._db.tenant_id,
            ttl_s=self._settings.answer_cache_ttl_s,
        )
        return AnswerCache(
            store,
            tenant_id=self._db.tenant_id,
            settings=self._application.settings_digest,
            metrics=self._application.metrics,
        )

    @cached_property
    def end_writes(self) -> QueryEndWrites:
        """Writes at a query's end."""
        return QueryEndWrites(
            self._db, answers=self.answer_cache, vectors=self.query_vectors, admission=self._admission
        )

    @cached_property
    def queries(self) -> QueryLookupRepository:
        """Look-up of queries with their collections."""
        return QueryLookupRepository(
            self._db,
            settings=self._application.settings_digest,
            stale_s=self._settings.answer_cache_stale_s,
        )

    @cached_property
    def settings(self) -> TenantSettingsRepository:
        """The tenant's own settings."""
        return TenantSettingsRepository(self._db)

    @cached_property
    def log_texts(self) -> LogTexts:
        """Policy for queries and answers in the query log."""
        return LogTexts(
            self._application.log_text_policies,
            self.settings,
            self._db.tenant_id,
            timeout_s=_LOG_POLICY_TIMEOUT_S,
        )

    async def clear(self) -> int:
        """Delete cached answers and vectors; return how many were stored."""
        self._application.answer_memory.clear(self._db.tenant_id)
        return await self.shared_answers.clear()
