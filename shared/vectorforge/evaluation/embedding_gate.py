"""Gate for an embedding model switch: compares the new model's results with the old one's."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Final

from vectorforge.bootstrap.tenant import TenantServices
from vectorforge.db.repositories.embedding_space_repo import EmbeddingModel
from vectorforge.embedding_switch.repo import EmbeddingSwitch, SwitchState
from vectorforge.embedding_switch.service import ModelComparison, NearChunk
from vectorforge.errors import ConflictError, EmbeddingSwitchRefusedError, InvalidInputError
from vectorforge.evaluation.metrics import ndcg
from vectorforge.evaluation.questions import Question
from vectorforge.evaluation.scoring import SourceIndex, Target, find_hits
from vectorforge.types import Collection
from vectorforge.vectorstore.validation import single_precision

MAX_QUESTIONS: Final = 1_000
LOGGED_QUESTIONS: Final = 100
"""Number of the latest queries of the query log to use."""
MIN_OVERLAP: Final = 0.4
MAX_NDCG_LOSS: Final = 0.02
_PARALLEL: Final = 4
_PASSAGES_PER_RANK: Final = 3
"""Chunks read per rank: several chunks of a judged document may be among the nearest."""
_SMALLEST_SHARE: Final = 5
"""Minimum number of chunks per rank; with fewer, two models agree by chance."""


@dataclass(frozen=True, slots=True)
class GateThresholds:
    """Thresholds for the new model."""

    k: int = 10
    """Ranks to compare, 1 to 100; fewer in a collection with less than five times as many chunks."""
    min_overlap: float | None = None
    """Mean share of the old model's first k that are among the new one's, 0 to 1. None: 0.4 where nothing is
    judged, otherwise 0: judgments are stronger evidence, and a better model finds other chunks."""
    max_ndcg_loss: float = MAX_NDCG_LOSS
    """Maximum loss of nDCG@k on judged questions, 0 to 1."""


@dataclass(frozen=True, slots=True)
class GateResult:
    """Result of a comparison."""

    questions: int
    judged: int
    k: int
    overlap: float
    min_overlap: float
    ndcg_before: float | None
    ndcg_after: float | None
    max_ndcg_loss: float | None

    @property
    def reason(self) -> str | None:
        """Reason for the rejection; None if the model passes."""
        if self.overlap < self.min_overlap:
            return (
                f"Of the first {self.k} passages that the old model finds, the new one finds "
                f"{self.overlap:.3f} ({self.questions} questions); {self.min_overlap:.3f} are required."
            )
        if self.ndcg_before is None or self.ndcg_after is None or self.max_ndcg_loss is None:
            return None
        if self.ndcg_after < self.ndcg_before - self.max_ndcg_loss:
            return (
                f"nDCG@{self.k} falls from {self.ndcg_before:.3f} to {self.ndcg_after:.3f} "
                f"({self.judged} judged questions); it may lose {self.max_ndcg_loss:.3f}."
            )
        return None

    @property
    def passed(self) -> bool:
        """True if the switch is allowed."""
        return self.reason is None


class EmbeddingGate:
    """Compares the two models of a change, by exact searches for the same questions."""

    def __init__(self, services: TenantServices, collection: Collection) -> None:
        self._services = services
        self._collection = collection
        self._reads: ModelComparison = services.model_changes.comparison(collection.id)

    async def _compare(
        self, switch: EmbeddingSwitch, questions: Sequence[Question] | None, thresholds: GateThresholds
    ) -> GateResult:
        if switch.state is not SwitchState.READY:
            raise ConflictError(
                f"The change is {switch.state.value}; the models are compared when it is ready."
            )
        if questions is None:
            texts = await self._reads.logged_questions(LOGGED_QUESTIONS)
            questions = [Question(str(number), text) for number, text in enumerate(texts)]
            if not questions:
                text = "No query of this collection is logged: pass `questions` to compare the models."
                raise InvalidInputError(text, field="questions")
        if not 1 <= len(questions) <= MAX_QUESTIONS:
            raise InvalidInputError(
                f"1 to {MAX_QUESTIONS:,} questions are needed to compare the models, not {len(questions)}.",
                field="questions",
            )
        targets = await self._targets(questions)
        k = max(1, min(thresholds.k, switch.passages // _SMALLEST_SHARE))
        before = await self._rankings(EmbeddingModel.of(self._collection), questions, k)
        after = await self._rankings(switch.other, questions, k)
        judged = [number for number, relevant in enumerate(targets) if relevant]
        default = 0.0 if judged else MIN_OVERLAP
        return GateResult(
            questions=len(questions),
            judged=len(judged),
            k=k,
            overlap=fmean(_overlap(old[:k], new[:k]) for old, new in zip(before, after, strict=True)),
            min_overlap=default if thresholds.min_overlap is None else thresholds.min_overlap,
            ndcg_before=_mean_ndcg(before, targets, judged, k),
            ndcg_after=_mean_ndcg(after, targets, judged, k),
            max_ndcg_loss=thresholds.max_ndcg_loss if judged else None,
        )

    async def switch(
        self, questions: Sequence[Question] | None, thresholds: GateThresholds
    ) -> tuple[EmbeddingSwitch, GateResult]:
        """Compare the models, and let the new one answer if it passes.

        Raises:
            NotFoundError: No change is open.
            EmbeddingSwitchRefusedError: The new model does not pass; its text has the figures.
            VectorForgeError: As ``measure``, or as ``EmbeddingSwitchRepository.switch``.
        """
        result = await self.measure(questions, thresholds)
        if result.reason is not None:
            raise EmbeddingSwitchRefusedError(result.reason)
        return await self._services.model_changes.stored.switch(self._collection.id), result

    async def measure(self, questions: Sequence[Question] | None, thresholds: GateThresholds) -> GateResult:
        """Compare the models of the collection's change on questions, and store the result with it.

        None instead of questions: the latest 100 queries.

        Raises:
            NotFoundError: No change is open.
            InvalidInputError: There is no question, there are more than 1,000, or a source fits several
                documents.
            ConflictError: The change is not ready, or is switched already.
            EmbeddingError: A question could not be embedded.
        """
        switches = self._services.model_changes.stored
        change = await switches.get(self._collection.id)
        result = await self._compare(change, questions, thresholds)
        record = {**asdict(result), "passed": result.passed}
        await switches.store_gate(self._collection.id, change.id, record)
        return result

    async def _targets(self, questions: Sequence[Question]) -> list[list[Target]]:
        """Return the relevant items of each question that are in the collection."""
        if not any(question.relevant for question in questions):
            return [[] for _ in questions]
        index = await SourceIndex.of_collection(self._services.documents, self._collection.id)
        return [[t for t in index.targets(question) if not t.missing] for question in questions]

    async def _rankings(
        self, model: EmbeddingModel, questions: Sequence[Question], k: int
    ) -> list[list[NearChunk]]:
        provider = self._services.embeddings.get(model.provider)
        places = asyncio.Semaphore(_PARALLEL)

        async def ranking(question: Question) -> list[NearChunk]:
            async with places:
                vector = await provider.embed_query(
                    model.query_prefix + question.text.strip(), model=model.model
                )
                query = single_precision(vector, field="questions")
                metric = self._collection.distance_metric
                return await self._reads.nearest(model.space, metric, query, k * _PASSAGES_PER_RANK)

        return list(await asyncio.gather(*(ranking(question) for question in questions)))


def _overlap(old: Sequence[NearChunk], new: Sequence[NearChunk]) -> float:
    """Return the share of the old chunks that are among the new ones; 1 if there are none."""
    expected = {chunk.id for chunk in old}
    return len(expected & {chunk.id for chunk in new}) / len(expected) if expected else 1.0


def _mean_ndcg(
    rankings: Sequence[Sequence[NearChunk]],
    targets: Sequence[Sequence[Target]],
    judged: Sequence[int],
    k: int,
) -> float | None:
    if not judged:
        return None
    return fmean(
        ndcg(
            find_hits(rankings[number], targets[number]),
            [target.relevant.grade for target in targets[number]],
            k,
        )
        for number in judged
    )
