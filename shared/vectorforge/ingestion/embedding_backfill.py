"""Backfill of vectors while a collection's embedding model changes."""

import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final
from uuid import UUID

from vectorforge.db.connection import Database
from vectorforge.db.repositories.embedding_space_repo import EmbeddingModel, EmbeddingModelRepository
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.embedding_switch.second_vectors import Batch, SecondVectors, SwitchWork
from vectorforge.errors import DatabaseError, NotFoundError, VectorForgeError, log_unexpected
from vectorforge.ingestion.drafts import embedded_text
from vectorforge.types import Vector

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 2.0
_LONGEST_PAUSE_S: Final = 300.0

_CLAIM = """
SELECT claimed_tenant_id, claimed_collection_id
FROM vectorforge.claim_embedding_switch(make_interval(secs => %s))
"""
_WAITS = "SELECT vectorforge.embedding_switch_waits() AS found"


@dataclass(eq=False, slots=True)
class EmbeddingBackfill:
    """Embeds chunks without a vector, in batches, for all tenants; any number of processes may run it.

    A step writes its vectors in one transaction and then releases the change, so a killed process loses
    one batch at most, which another process repeats after the lease has expired.

    Args:
        batch: Chunks embedded in one step, at least 1.
        lease_s: Seconds after which another process may repeat a step; a process that was only slow then
            finds its vectors stored already.
        per_minute: Chunks of one collection embedded per minute by all processes together, at least 1, on
            average, with pauses between batches. None: no limit.
    """

    database: Database
    embeddings: EmbeddingProviderRegistry
    _: KW_ONLY
    batch: int = 128
    lease_s: float = 60.0
    per_minute: int | None = None
    _pause_s: float | None = field(default=None, init=False)

    async def waits(self) -> bool:
        """Return True if there is unclaimed work."""
        row = await self.database.fetch_untenanted(_WAITS)
        return bool(row and row["found"])

    def take_pause_s(self) -> float | None:
        """Return the pause that the last step requested from all processes, once; None without one."""
        pause_s, self._pause_s = self._pause_s, None
        return pause_s

    async def step(self) -> bool:
        """Embed one batch of a waiting change; returns False if there is none.

        Raises:
            VectorForgeError: The database failed; the step can be done again later.
        """
        claimed = await self.database.fetch_untenanted(_CLAIM, (self.lease_s,))
        if claimed is None:
            return False
        tenant_id, collection_id = claimed.values()
        await self.work_for(tenant_id, collection_id)
        return True

    async def work_for(self, tenant_id: str, collection_id: UUID) -> None:
        """Embed one batch of this collection; a provider failure is stored with the change, and retried."""
        db = self.database.for_tenant(tenant_id)
        vectors = SecondVectors(db, collection_id)
        work = await vectors.work()
        if work is None:
            return
        try:
            if work.state == "removing":
                await vectors.remove()
            else:
                models = await EmbeddingModelRepository(db).of(collection_id)
                await self._fill(vectors, work, models, self.embeddings.for_tenant(tenant_id))
        except NotFoundError:  # deleted concurrently
            return
        except DatabaseError:
            raise
        except VectorForgeError as exc:
            logger.warning("Re-embedding of a collection is paused: %s", exc.message)
            await self._fail(vectors, work, exc)
        except Exception as exc:  # noqa: BLE001 - logged without its text; other collections continue
            log_unexpected(logger, "Re-embedding of a collection failed unexpectedly", exc)
            await self._fail(vectors, work, VectorForgeError())

    async def _fill(
        self,
        vectors: SecondVectors,
        work: SwitchWork,
        models: Sequence[EmbeddingModel],
        embeddings: EmbeddingProviderRegistry,
    ) -> None:
        if len(models) != 2:  # it has ended
            return
        spaces = (models[0].space, models[1].space)
        started = time.monotonic()
        batch = await vectors.next_batch(work, spaces, min(self.batch, self.per_minute or self.batch))
        made = {model.space: await self._embedded(embeddings, model, batch) for model in models}
        pause_s = 0.0
        if self.per_minute is not None:
            embedded = sum(map(len, made.values()))
            pause_s = max(embedded * 60 / self.per_minute - (time.monotonic() - started), 0.0)
        await vectors.write(work, batch, made, pause_s=pause_s)
        if not batch.is_last or not await vectors.end_pass(work, spaces, pause_s=max(pause_s, 1.0)):
            self._pause_s = pause_s or None

    async def _embedded(
        self, embeddings: EmbeddingProviderRegistry, model: EmbeddingModel, batch: Batch
    ) -> dict[UUID, Vector]:
        """Return the missing vectors of a batch for this model."""
        texts: defaultdict[str, list[UUID]] = defaultdict(list)
        for chunk in batch.passages:
            if model.space in chunk.spaces:
                text = embedded_text(chunk.title, chunk.heading, chunk.text, chunk.index_context)
                texts[model.document_prefix + text].append(chunk.id)
        if not texts:
            return {}
        provider = embeddings.get(model.provider)
        made = await provider.embed_chunks(list(texts), model=model.model)
        return {key: vector for keys, vector in zip(texts.values(), made, strict=True) for key in keys}

    async def _fail(self, vectors: SecondVectors, work: SwitchWork, exc: VectorForgeError) -> None:
        pause_s = min(_FIRST_PAUSE_S * 2.0 ** min(work.failures, 10), _LONGEST_PAUSE_S)
        await vectors.fail(work, code=exc.code, message=exc.message, pause_s=pause_s)
        self._pause_s = pause_s
