"""Parts of one tenant's services: its limits, its caches, and its collections by id or name."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID, uuid4

from vectorforge.bootstrap.shared import Shared
from vectorforge.db.repositories.answer_cache_repo import AnswerCacheRepository
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.query_log_repo import TenantSettingsRepository
from vectorforge.db.repositories.query_lookup_repo import (
    QueryLookupRepository,
    QueryVectorRepository,
    as_uuid,
)
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import ConflictError, DimensionMismatchError, NotFoundError
from vectorforge.limits.admission import Admission, charge
from vectorforge.limits.settings import Claim
from vectorforge.pipeline.answer_cache.cache import AnswerCache
from vectorforge.pipeline.guardrails.log_text import LogTexts
from vectorforge.pipeline.query_log import QueryEndWrites
from vectorforge.types import Collection, DistanceMetric, SearchSettings, VectorIndex

if TYPE_CHECKING:
    from vectorforge.ingestion.contexts import ContextModel
    from vectorforge.limits.settings import TenantLimits

T = TypeVar("T")

_LATEST_END_S = 30.0
"""After a query's deadline: by then it is settled, or its process is gone."""
_LOG_POLICY_TIMEOUT_S = 0.1
"""A longer wait would delay the record beyond the time limit of the queue."""
_COMPARED_NAMES = 200
"""Collections whose names are compared with a misspelled one."""


class LimitServices:
    """Limits of one tenant, and the admission of one of its requests.

    Args:
        request_id: Id made by this server for the request; None: the services are for the operator or for
            background work, which need no admission.
    """

    def __init__(self, shared: Shared, db: TenantDatabase, request_id: UUID | None) -> None:
        self._shared = shared
        self._db = db
        hold_s = shared.config.query.query_timeout_s + _LATEST_END_S
        self.admission: Admission | None = None
        if request_id is not None:
            self.admission = Admission(db, shared.limit_gate, request_id, hold_s=hold_s)

    @cached_property
    def own(self) -> "TenantLimits":
        """Limits in the database."""
        from vectorforge.limits.settings import TenantLimits

        return TenantLimits(self._db)

    async def admit(self, claim: Claim = Claim()) -> None:  # noqa: B008 - immutable
        """Admit the request before it costs anything; raises as ``Admission.admit``."""
        if self.admission is not None:
            await self.admission.admit(lambda: claim)

    def note_used(self, tokens: int) -> None:
        """Note the tokens that the end of the request settles."""
        if self.admission is not None:
            self.admission.settling(tokens, None)

    def new_admission(self) -> Admission:
        """Return the admission of one call of a model in the background."""
        hold_s = self._shared.config.ingestion.context_timeout_s + _LATEST_END_S
        return Admission(self._db, self._shared.limit_gate, uuid4(), hold_s=hold_s)

    async def charge(self, tokens: int) -> None:
        """Count tokens of background work before they are used; raises as ``limits.admission.charge``."""
        await charge(self._db, self._shared.limit_gate, tokens)


class TenantCaches:
    """Caches of one tenant."""

    def __init__(self, shared: Shared, db: TenantDatabase, admission: Admission | None) -> None:
        self._shared = shared
        self._admission = admission
        self._settings = shared.config.cache
        self._db = db

    @cached_property
    def query_vectors(self) -> QueryVectorRepository | None:
        """Cache of query vectors; None if disabled."""
        ttl_s = self._settings.embedding_cache_ttl_s
        if not ttl_s:
            return None
        return QueryVectorRepository(self._db, settings=self._shared.settings_digest, ttl_s=ttl_s)

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
        return AnswerCache(
            self._shared.answer_memory,
            self.shared_answers,
            tenant_id=self._db.tenant_id,
            ttl_s=self._settings.answer_cache_ttl_s,
            settings=self._shared.settings_digest,
            metrics=self._shared.metrics,
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
            settings=self._shared.settings_digest,
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
            self._shared.log_text_policies,
            self.settings,
            self._db.tenant_id,
            timeout_s=_LOG_POLICY_TIMEOUT_S,
        )

    async def clear(self) -> int:
        """Delete cached answers and vectors; return how many were stored."""
        self._shared.answer_memory.clear(self._db.tenant_id)
        return await self.shared_answers.clear()


class CollectionCatalogue:
    """Collections of one tenant, with defaults from its embedding providers."""

    def __init__(self, collections: CollectionRepository, embeddings: EmbeddingProviderRegistry) -> None:
        self.collections = collections
        self._embeddings = embeddings

    async def find_collection(self, name_or_id: str) -> Collection:
        """Return a collection by id or name; an id wins.

        Raises:
            NotFoundError: No such collection.
        """
        if (as_id := as_uuid(name_or_id)) and (collection := await self.collections.find_by_id(as_id)):
            return collection
        return await self._find_by_name(name_or_id)

    async def with_collection_id(self, name_or_id: str, work: Callable[[UUID], Awaitable[T]]) -> T:
        """Run work on a collection by id or name; an id wins, and is not looked up before the work.

        Args:
            name_or_id: Name or id of the collection.
            work: Raises ``NotFoundError``, without any effect, for an unknown id; then the name is tried.

        Raises:
            NotFoundError: No such collection.
        """
        if as_id := as_uuid(name_or_id):
            with suppress(NotFoundError):
                return await work(as_id)
        return await work((await self._find_by_name(name_or_id)).id)

    async def _find_by_name(self, name: str) -> Collection:
        collection = await self.collections.find_by_name(name)
        if collection is None:
            raise NotFoundError(f'There is no collection "{name}".{await self._similar_name(name)}')
        return collection

    async def _similar_name(self, name: str) -> str:
        from difflib import get_close_matches

        names = [collection.name for collection in await self.collections.list(limit=_COMPARED_NAMES)]
        return "".join(f' Did you mean "{similar}"?' for similar in get_close_matches(name, names, 1))

    async def find_or_create_collection(
        self, name: str, *, description: str = "", by_profile: bool = False
    ) -> Collection:
        """Return a collection by name; create it if it is missing. Errors as ``create_collection``."""
        collection = await self.collections.find_by_name(name)
        if collection is not None:
            return collection
        try:
            return await self.create_collection(name, description=description, by_profile=by_profile)
        except ConflictError:  # another request created it meanwhile
            collection = await self.collections.find_by_name(name)
            if collection is None:
                raise
            return collection

    async def create_collection(
        self,
        name: str,
        *,
        description: str = "",
        embedding_provider: str | None = None,
        embedding_model: str | None = None,
        dimension: int | None = None,
        distance_metric: DistanceMetric = DistanceMetric.COSINE,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
        by_profile: bool = False,
        search: SearchSettings | None = None,
        vector_index: VectorIndex = VectorIndex.FULL,
        keep_originals: bool = True,
        contextual: bool = False,
        ocr: bool = False,
    ) -> Collection:
        """Create a collection; None takes a value from the embedding provider.

        Raises:
            InvalidInputError: A value is invalid, or the provider or its model is unknown.
            ConflictError: The name is taken.
            DimensionMismatchError: The model's vectors do not have the requested dimension.
            EmbeddingError: The model's dimension had to be measured, and that failed.
        """
        from vectorforge.embedding_switch.service import chosen_model

        provider, model, actual = await chosen_model(self._embeddings, embedding_provider, embedding_model)
        if dimension is not None and dimension != actual:
            raise DimensionMismatchError(expected=dimension, actual=actual, what=f"model {model}")
        traits = provider.traits(model)
        return await self.collections.create(
            name,
            description=description,
            embedding_provider=provider.name,
            embedding_model=model,
            dimension=actual,
            distance_metric=distance_metric,
            query_prefix=traits.query_prefix if query_prefix is None else query_prefix,
            document_prefix=traits.document_prefix if document_prefix is None else document_prefix,
            by_profile=by_profile,
            search=search or SearchSettings(),
            vector_index=vector_index,
            keep_originals=keep_originals,
            contextual=contextual,
            ocr=ocr,
        )


def context_model(shared: Shared, limits: LimitServices) -> "ContextModel | None":
    """Return the model that writes contexts of chunks, or None if the settings name none."""
    from vectorforge.ingestion.contexts import ContextModel
    from vectorforge.pipeline.prices import PriceList

    settings, registry = shared.config.ingestion, shared.llm_registry
    target = registry.context_target(settings.context_provider, settings.context_model)
    if target is None:
        return None
    return ContextModel(
        target.provider,
        target.model,
        # its own: slow contexts must not suspend answers
        registry.breakers.find(target.provider.name, f"{target.model} (contexts)"),
        PriceList(shared.config.llm.model_prices).estimate_cost,
        limits.new_admission,
        settings.context_timeout_s,
    )
