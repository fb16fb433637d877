"""What is stored of one tenant, each kind of it behind its repository."""

from functools import cached_property
from typing import TYPE_CHECKING

from vectorforge.config import VectorForgeConfig
from vectorforge.db.connection import Database
from vectorforge.db.repositories.answer_stream_repo import AnswerStreamRepository
from vectorforge.db.repositories.collection_listing import CollectionListing
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.conversation_repo import ConversationRepository
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.db.repositories.job_repo import JobRepository
from vectorforge.db.repositories.query_log_repo import QueryLogRepository
from vectorforge.db.tenant_database import TenantDatabase

if TYPE_CHECKING:  # what no question needs is imported when it is asked for
    from vectorforge.db.repositories.api_key_repo import ApiKeyRepository
    from vectorforge.db.repositories.idempotent_answer_repo import IdempotentAnswerRepository
    from vectorforge.db.repositories.statistics_repo import StatisticsRepository


class TenantRepositories:
    """The tenant's rows; no repository reaches another tenant's."""

    def __init__(self, database: Database, tenant_id: str, config: VectorForgeConfig) -> None:
        self._database = database
        self._config = config
        self.tenant_id = tenant_id

    @cached_property
    def _db(self) -> TenantDatabase:
        return self._database.for_tenant(self.tenant_id)

    @cached_property
    def collections(self) -> CollectionRepository:
        """Collections of the tenant."""
        return CollectionRepository(self._db, max_collections=self._config.ingestion.max_collections)

    @cached_property
    def listing(self) -> CollectionListing:
        """Collections and documents of the tenant, page by page."""
        return CollectionListing(self._db)

    @cached_property
    def documents(self) -> DocumentRepository:
        """Documents of the tenant."""
        return DocumentRepository(self._db)

    @cached_property
    def jobs(self) -> JobRepository:
        """Ingestion jobs of the tenant."""
        return JobRepository(self._db)

    @cached_property
    def query_logs(self) -> QueryLogRepository:
        """The tenant's query log."""
        return QueryLogRepository(self._db)

    @cached_property
    def statistics(self) -> "StatisticsRepository":
        """Numbers about the tenant's query log."""
        from vectorforge.db.repositories.statistics_repo import StatisticsRepository

        return StatisticsRepository(self._db)

    @cached_property
    def conversations(self) -> ConversationRepository:
        """Stored conversations of the tenant."""
        settings = self._config.query
        return ConversationRepository(
            self._db,
            max_conversations=settings.max_conversations,
            max_messages=settings.max_conversation_messages,
            max_per_key=settings.max_conversations_per_key,
        )

    @cached_property
    def api_keys(self) -> "ApiKeyRepository":
        """The tenant's API keys."""
        from vectorforge.db.repositories.api_key_repo import ApiKeyRepository

        return ApiKeyRepository(self._db)

    @cached_property
    def answer_streams(self) -> AnswerStreamRepository:
        """Streamed answers of the tenant, for readers who come back."""
        settings = self._config
        return AnswerStreamRepository(
            self._db, kept_s=settings.streams.stream_buffer_s, longest_s=settings.query.query_timeout_s
        )

    @cached_property
    def idempotent_answers(self) -> "IdempotentAnswerRepository":
        """Answers of the tenant under an ``Idempotency-Key``."""
        from vectorforge.db.repositories.idempotent_answer_repo import IdempotentAnswerRepository

        settings = self._config
        return IdempotentAnswerRepository(
            self._db,
            kept_s=settings.streams.idempotency_kept_s,
            longest_s=settings.query.query_timeout_s,
            max_keys=settings.streams.idempotency_max_keys,
            max_bytes=settings.streams.idempotency_max_bytes,
        )
