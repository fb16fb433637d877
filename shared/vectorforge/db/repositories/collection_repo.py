"""Collections: sets of documents that share one embedding model, dimension and metric."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

from vectorforge.db.repositories.embedding_space_repo import ENSURE_SPACE, MAX_HALF_DIMENSION, ensured_space
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import ConflictError, InvalidInputError, RefusedRowError
from vectorforge.names import check_name
from vectorforge.types import Collection, DistanceMetric, SearchMode, SearchSettings, VectorIndex

MAX_NAME_CHARS = 200
MAX_DIMENSION = 16_000
"""Limit of pgvector's ``vector`` type."""

DETECTED = "auto"
"""The ``language`` of a collection whose documents each have their own."""
DEFAULT_LANGUAGE = "english"
_DELETE_BATCH = 200
_AS_BY_DEFAULT = SearchSettings()

COLUMNS = """
id, name, description, embedding_provider, embedding_model, dimension, distance_metric, query_prefix,
document_prefix, by_profile, data_version, document_count, chunk_count, search_mode, dense_weight, language,
coalesce(detect_language, language = 'english') AS detect_language,
coalesce(languages, ARRAY[]::text[]) AS languages, terms_complete, keeps_words, keep_originals,
contextual, ocr,
coalesce(space, distance_metric || '_' || dimension) AS space, created_at
"""

_CREATE = f"""
INSERT INTO vectorforge.collections (
    tenant_id, id, name, description, embedding_provider, embedding_model, dimension, distance_metric,
    query_prefix, document_prefix, by_profile, space, search_mode, dense_weight, language, keeps_words,
    detect_language, keep_originals, contextual, ocr
)
SELECT
    %(tenant_id)s, %(id)s, %(name)s, %(description)s, %(embedding_provider)s, %(embedding_model)s,
    %(dimension)s, %(distance_metric)s, %(query_prefix)s, %(document_prefix)s, %(by_profile)s, %(space)s,
    coalesce(%(search_mode)s, CASE WHEN %(by_profile)s OR NOT %(keeps_words)s THEN 'dense' ELSE 'hybrid' END),
    coalesce(%(dense_weight)s, 0.5), coalesce(%(language)s, 'english'), coalesce(%(keeps_words)s, true),
    coalesce(%(detect_language)s, true), %(keep_originals)s, %(contextual)s, %(ocr)s
WHERE %(limit)s::bigint IS NULL
    OR (SELECT count(*) FROM vectorforge.collections WHERE tenant_id = %(tenant_id)s) < %(limit)s
ON CONFLICT (tenant_id, name) DO NOTHING
RETURNING {COLUMNS}
"""

_BY_ID = f"SELECT {COLUMNS} FROM vectorforge.collections WHERE tenant_id = %s AND id = %s"
_BY_NAME = f"SELECT {COLUMNS} FROM vectorforge.collections WHERE tenant_id = %s AND name = %s"
_LIST = (
    f"SELECT {COLUMNS} FROM vectorforge.collections WHERE tenant_id = %s ORDER BY name, id LIMIT %s OFFSET %s"
)

_DELETE_DOCUMENTS = """
DELETE FROM vectorforge.documents
WHERE tenant_id = %(tenant_id)s AND id IN (
    SELECT id FROM vectorforge.documents
    WHERE tenant_id = %(tenant_id)s AND collection_id = %(id)s LIMIT %(batch)s
)
"""
_DELETE = "DELETE FROM vectorforge.collections WHERE tenant_id = %s AND id = %s"
# A statement of its own, so that the next one sees documents that others have added meanwhile.
_LOCK = "SELECT FROM vectorforge.collections WHERE tenant_id = %(tenant_id)s AND id = %(id)s FOR UPDATE"
_DELETE_EMPTY = """
DELETE FROM vectorforge.collections AS c
WHERE c.tenant_id = %(tenant_id)s AND c.id = %(id)s AND NOT EXISTS (
    SELECT FROM vectorforge.documents WHERE tenant_id = c.tenant_id AND collection_id = c.id
) AND NOT EXISTS (
    SELECT FROM vectorforge.ingestion_jobs WHERE tenant_id = c.tenant_id AND collection_id = c.id
)
"""


# FOR UPDATE, which waits for writers of documents: they have read words by the language of before, and none
# may come to light after a worker has read everything by the new one.
_SET_SEARCH = f"""
WITH held AS (
    SELECT id, keeps_words OR coalesce(%(keeps_words)s, false)
        OR coalesce(%(search_mode)s, search_mode) <> 'dense' AS keeps_words,
        CASE
            WHEN %(language)s::text IS NULL THEN true
            WHEN %(detect_language)s THEN coalesce(detect_language, language = 'english')
            ELSE coalesce(languages, ARRAY[language]) <@ ARRAY[%(language)s]
        END AS same_words
    FROM vectorforge.collections
    WHERE tenant_id = %(tenant_id)s AND id = %(id)s FOR UPDATE
), changed AS (
    UPDATE vectorforge.collections AS c
    SET search_mode = coalesce(%(search_mode)s, c.search_mode),
        dense_weight = coalesce(%(dense_weight)s, c.dense_weight),
        language = coalesce(%(language)s, c.language),
        detect_language = coalesce(%(detect_language)s, c.detect_language),
        languages = CASE WHEN NOT %(detect_language)s THEN ARRAY[%(language)s] ELSE c.languages END,
        keeps_words = held.keeps_words,
        terms_complete = NOT held.keeps_words OR c.terms_complete AND c.keeps_words AND held.same_words,
        terms_cursor = CASE WHEN c.keeps_words AND held.same_words THEN c.terms_cursor END,
        data_version = c.data_version + 1
    FROM held WHERE c.tenant_id = %(tenant_id)s AND c.id = held.id
    RETURNING c.*
)
SELECT {COLUMNS} FROM changed
"""
_UPDATE = """
UPDATE vectorforge.collections AS c
SET name = coalesce(%(name)s, name), metadata = coalesce(%(metadata)s::jsonb, metadata)
WHERE tenant_id = %(tenant_id)s AND id = %(collection_id)s AND NOT EXISTS (
    SELECT FROM vectorforge.collections AS other
    WHERE other.tenant_id = c.tenant_id AND other.name = %(name)s AND other.id <> c.id
)
"""
_SET_INGESTION = """
UPDATE vectorforge.collections
SET keep_originals = coalesce(%(keep_originals)s, keep_originals), ocr = coalesce(%(ocr)s, ocr),
    contextual = coalesce(%(contextual)s, contextual)
WHERE tenant_id = %(tenant_id)s AND id = %(id)s AND NOT (by_profile AND coalesce(%(contextual)s, false))
"""
_LANGUAGES = """
SELECT cfgname::text AS name FROM pg_catalog.pg_ts_config
WHERE cfgnamespace = 'pg_catalog'::regnamespace ORDER BY 1
"""


class CollectionRepository:
    """The collections of one tenant.

    Args:
        max_collections: Limit of the tenant; creating one more fails. Concurrent calls may exceed it by their
            number. None: no limit.
    """

    def __init__(self, db: TenantDatabase, *, max_collections: int | None = None) -> None:
        self._db = db
        self._max_collections = max_collections

    async def create(
        self,
        name: str,
        *,
        embedding_provider: str,
        embedding_model: str,
        dimension: int,
        distance_metric: DistanceMetric,
        query_prefix: str = "",
        document_prefix: str = "",
        description: str = "",
        by_profile: bool = False,
        search: SearchSettings = _AS_BY_DEFAULT,
        vector_index: VectorIndex = VectorIndex.FULL,
        keep_originals: bool = True,
        contextual: bool = False,
        ocr: bool = False,
    ) -> Collection:
        """Make an empty collection.

        Args:
            name: Unique within the tenant, 1 to 200 characters, not only blanks, without control characters.
            embedding_provider: Name under which the provider is registered.
            embedding_model: Model of the provider.
            dimension: Length of the model's vectors, 1 to 16,000. An index makes searches fast up to 4,000;
                above, they are exact scans.
            distance_metric: Metric of the vectors.
            query_prefix: Prefix of every query when it is embedded.
            document_prefix: Prefix of every chunk when it is embedded.
            description: Free text.
            by_profile: Every document must belong to a profile.
            search: Search settings.
            vector_index: Kind of the vector index, built once there are enough vectors.
            keep_originals: Keep the files of its documents.
            contextual: Embed and index chunks with a context, not for profiles.
            ocr: Recognize pages without a text layer.

        Raises:
            ConflictError: The name is taken, or the tenant's limit is reached.
            InvalidInputError: Name, dimension or a setting is out of range, or the index does not fit the
                others.
            DatabaseUnavailableError: The tables for this dimension could not be created now.
        """
        _check(name, dimension)
        _check_index(vector_index, distance_metric, dimension)
        _check_words(search, by_profile=by_profile)
        if contextual and by_profile:
            raise _no_context_for_profiles()
        values = {
            **await self._checked(search),
            "id": uuid4(),
            "name": name,
            "description": description,
            "embedding_provider": embedding_provider,
            "embedding_model": embedding_model,
            "dimension": dimension,
            "distance_metric": distance_metric.value,
            "query_prefix": query_prefix,
            "document_prefix": document_prefix,
            "by_profile": by_profile,
            "kind": vector_index.value,
            "keep_originals": keep_originals,
            "contextual": contextual,
            "ocr": ocr,
            "limit": self._max_collections,
            # NULL is the partition that versions before this one know
            "space": None
            if vector_index is VectorIndex.FULL
            else f"{distance_metric.value}_{dimension}_{vector_index.value}",
        }
        await ensured_space(self._db, ENSURE_SPACE, values, tables=f"{dimension} dimensions")
        row = await self._db.fetch_one(_CREATE, values)
        if row is None and await self.find_by_name(name) is None:
            raise ConflictError(
                f"A tenant may have at most {self._max_collections} collections; delete one first."
            )
        if row is None:
            raise _taken(name)
        return Collection.of_row(row)

    async def find_by_id(self, collection_id: UUID) -> Collection | None:
        """Return the collection, or None."""
        row = await self._db.fetch_one(_BY_ID, (self._db.tenant_id, collection_id), repeatable=True)
        return Collection.of_row(row) if row else None

    async def version(self, collection_id: UUID) -> int | None:
        """Return the ``data_version`` of the collection, or None."""
        collection = await self.find_by_id(collection_id)
        return None if collection is None else collection.data_version

    async def find_by_name(self, name: str) -> Collection | None:
        """Return the collection of exactly this name, or None."""
        row = await self._db.fetch_one(_BY_NAME, (self._db.tenant_id, name), repeatable=True)
        return Collection.of_row(row) if row else None

    async def list(self, *, limit: int | None = None, offset: int = 0) -> list[Collection]:
        """Return a page of the tenant's collections, by name; without a limit all from ``offset`` on."""
        rows = await self._db.fetch_all(_LIST, (self._db.tenant_id, limit, offset))
        return [Collection.of_row(row) for row in rows]

    async def set_search(self, collection_id: UUID, settings: SearchSettings) -> Collection | None:
        """Change how a collection is searched; its cached answers expire.

        After a change of the language, chunks are found by words in the former language until a worker has
        indexed them again; ``terms_complete`` is false until then, and also after setting a mode that needs
        words in a collection without them.

        Returns:
            The collection, or None.

        Raises:
            InvalidInputError: A setting is out of range, or ``keeps_words`` is false.
        """
        if settings.keeps_words is False:
            raise InvalidInputError(
                "keeps_words cannot be disabled on an existing collection; create a new one.",
                field="keeps_words",
            )
        values = {**await self._checked(settings), "id": collection_id}
        row = await self._db.fetch_one(_SET_SEARCH, values)
        return Collection.of_row(row) if row else None

    async def set_ingestion(
        self,
        collection_id: UUID,
        *,
        keep_originals: bool | None = None,
        ocr: bool | None = None,
        contextual: bool | None = None,
    ) -> None:
        """Set how documents are ingested from now on; None leaves a setting as it is.

        Raises:
            InvalidInputError: ``contextual`` for a collection of profiles; nothing is set.
        """
        values = {"id": collection_id, "keep_originals": keep_originals, "ocr": ocr, "contextual": contextual}
        if not await self._db.execute(_SET_INGESTION, values) and await self.find_by_id(collection_id):
            raise _no_context_for_profiles()

    async def update(
        self, collection_id: UUID, *, name: str | None = None, metadata: Mapping[str, str] | None = None
    ) -> None:
        """Change the name or the metadata of a collection; None leaves it.

        Raises:
            ConflictError: Another collection has the name.
            InvalidInputError: The name has not 1 to 200 characters, or a control character.
        """
        if name is not None:
            _check(name)
        encoded = None if metadata is None else json.dumps(dict(metadata))
        values = {"collection_id": collection_id, "name": name, "metadata": encoded}
        try:
            is_changed = await self._db.execute(_UPDATE, values)
        except RefusedRowError:  # the name was given to another one meanwhile
            is_changed = 0
        if not is_changed and await self.find_by_id(collection_id):
            raise _taken(str(name))

    async def delete(self, collection_id: UUID) -> bool:
        """Remove a collection with its documents, chunks, vectors and jobs; its query logs stay.

        Documents go in batches of their own transactions, so that no statement takes long; when it is
        interrupted, some are left, and a second call removes them.

        Returns:
            False when there was no such collection.
        """
        values = {"id": collection_id, "batch": _DELETE_BATCH}
        while await self._db.execute(_DELETE_DOCUMENTS, values) == _DELETE_BATCH:
            pass
        return await self._db.execute(_DELETE, (self._db.tenant_id, collection_id)) == 1

    async def delete_empty(self, collection_id: UUID) -> None:
        """Delete a collection if it has no document and no job."""
        values = {"id": collection_id}
        await self._db.run([(_LOCK, values), (_DELETE_EMPTY, values)])

    async def _checked(self, settings: SearchSettings) -> dict[str, Any]:
        """Return the settings by name, None where one is not to be set."""
        weight, language = settings.dense_weight, settings.language
        if weight is not None and not 0 <= weight <= 1:
            raise InvalidInputError("dense_weight must be between 0 and 1.", field="dense_weight")
        if language == DETECTED:
            language = DEFAULT_LANGUAGE
        elif language is not None:
            known = [row["name"] for row in await self._db.fetch_all(_LANGUAGES)]
            if language not in known:
                raise InvalidInputError(
                    f"language must be one of: {DETECTED}, {', '.join(known)}.", field="language"
                )
        return {
            "search_mode": settings.search_mode and settings.search_mode.value,
            "dense_weight": weight,
            "language": language,
            "detect_language": None if language is None else settings.language == DETECTED,
            "keeps_words": settings.keeps_words,
        }


def _taken(name: str) -> ConflictError:
    return ConflictError(f"A collection named {name!r} already exists.")


def _check(name: str, dimension: int = 1) -> None:
    if not name.strip() or len(name) > MAX_NAME_CHARS:
        raise InvalidInputError(f"name must have 1 to {MAX_NAME_CHARS} characters.", field="name")
    check_name(name)
    if not 1 <= dimension <= MAX_DIMENSION:
        raise InvalidInputError(f"dimension must be between 1 and {MAX_DIMENSION}.", field="dimension")


def _check_index(kind: VectorIndex, metric: DistanceMetric, dimension: int) -> None:
    if kind is VectorIndex.HALF and dimension > MAX_HALF_DIMENSION:
        raise InvalidInputError(
            f"vector_index half supports at most {MAX_HALF_DIMENSION} dimensions, not {dimension}.",
            field="vector_index",
        )
    if kind is VectorIndex.BINARY and metric is DistanceMetric.L2:
        raise InvalidInputError(
            "vector_index binary compares directions and does not support the metric l2.",
            field="vector_index",
        )


def _no_context_for_profiles() -> InvalidInputError:
    return InvalidInputError("contextual must be false in a collection of profiles.", field="contextual")


def _check_words(search: SearchSettings, *, by_profile: bool) -> None:
    if search.keeps_words is not False:
        return
    if by_profile:
        raise InvalidInputError("keeps_words must be true in a collection of profiles.", field="keeps_words")
    if search.search_mode not in (None, SearchMode.DENSE):
        raise InvalidInputError(
            f"search_mode {search.search_mode} needs words: keeps_words cannot be false.", field="keeps_words"
        )
