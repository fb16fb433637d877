"""Runs of a question set: every question under every variant, with scores."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from vectorforge.bootstrap import TenantServices
from vectorforge.errors import InvalidInputError, LLMError, VectorForgeError
from vectorforge.evaluation.questions import Question, QuestionSet
from vectorforge.evaluation.scoring import Scored, Scorer, SourceIndex, Target
from vectorforge.pipeline.presets import VECTORFORGE
from vectorforge.pipeline.types import QueryConfig
from vectorforge.types import Collection, SearchMode

_MAX_FAILED_IN_A_ROW = 8
"""Consecutive failures or degraded answers after which a service is considered down."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Questions to evaluate, and the settings."""

    questions: QuestionSet
    variants: Sequence[str]
    """Names; the others are compared with the first."""
    k: int = 10
    """Ranks of the measures."""
    top_k: int | None = None
    """Chunks to retrieve; None leaves it to the variant."""
    retrieval_only: bool = False
    """Only search: no model is called, nothing is logged."""
    parallel: int = 1
    """Concurrent questions; latencies are measured under this load."""
    search_mode: SearchMode | None = None
    """Search mode; None uses that of the variant or the collection."""


@dataclass(frozen=True, slots=True)
class Run:
    """One variant's scores, in the order of the questions."""

    variant: str
    scored: Sequence[Scored]

    @property
    def failures(self) -> int:
        """Questions that failed."""
        return sum(scored.error is not None for scored in self.scored)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a completed evaluation."""

    plan: Plan
    collection: str
    """Its name."""
    runs: Sequence[Run]
    """One for each variant."""
    missing_sources: Sequence[str] = ()
    """Sources of the questions that are not in the collection."""


class Evaluation:
    """Runs the questions of a plan on one collection.

    Raises:
        InvalidInputError: A variant does not exist.
    """

    def __init__(self, services: TenantServices, collection: Collection, plan: Plan) -> None:
        self._services = services
        self._collection = collection
        self.plan = plan
        given = {"top_k": plan.top_k, "search_mode": plan.search_mode}
        explicit = {name: value for name, value in given.items() if value is not None}
        self._configs: Mapping[str, QueryConfig] = {
            name: VECTORFORGE.config(services.choose_variant(name), use_cache=False, **explicit)
            for name in plan.variants
        }
        self._failed_in_a_row = 0
        self._stopped_by: VectorForgeError | None = None
        self.missing_sources: list[str] = []
        """Sources of the questions that are not in the collection, so no search finds them."""

    async def run(self, on_progress: Callable[[], None] = lambda: None) -> list[Run]:
        """Run every question under all variants in random order; ``on_progress`` is called after each answer.

        Raises:
            InvalidInputError: The collection has none of the sources that the questions name.
            VectorForgeError: A service is down: the last one of eight failures in a row.
            LLMError: Eight answers in a row were degraded, so their figures would not measure the variants.
        """
        targets = await self.find_targets()
        await self._warm_up()
        places = asyncio.Semaphore(self.plan.parallel)
        scores: dict[str, list[Scored | None]] = {
            name: [None] * len(self.plan.questions.questions) for name in self._configs
        }

        async def ask(number: int, question: Question) -> None:
            scorer = Scorer(question, targets[question.id], self.plan.k)
            # Later variants benefit from warm caches, so the order is random.
            names = random.Random(question.id).sample(list(self._configs), len(self._configs))
            async with places:
                for name in names:
                    if self._stopped_by is not None:
                        return
                    scores[name][number] = await self._score(scorer, self._configs[name])
                    on_progress()

        async with asyncio.TaskGroup() as group:
            for number, question in enumerate(self.plan.questions.questions):
                group.create_task(ask(number, question))
        if self._stopped_by is not None:
            raise self._stopped_by
        return [Run(name, [s for s in scored if s is not None]) for name, scored in scores.items()]

    async def _score(self, scorer: Scorer, config: QueryConfig) -> Scored:
        error: VectorForgeError | None = None
        try:
            scored = await (self._search if self.plan.retrieval_only else self._ask)(scorer, config)
            if scored.values.get("degraded"):
                error = LLMError(f"{_MAX_FAILED_IN_A_ROW} answers in a row were degraded.")
        except VectorForgeError as exc:
            scored = scorer.failure(exc.message, answers=not self.plan.retrieval_only)
            error = exc if exc.is_fault else None
        self._failed_in_a_row = self._failed_in_a_row + 1 if error else 0
        if self._failed_in_a_row >= _MAX_FAILED_IN_A_ROW:
            self._stopped_by = error
        return scored

    async def _search(self, scorer: Scorer, config: QueryConfig) -> Scored:
        started = time.perf_counter()
        chunks = await self._services.retriever.retrieve(
            scorer.question.text,
            self._collection.id,
            config.top_k,
            config.filters,
            config.min_score,
            config.embedding_provider,
            search_mode=config.search_mode,
            mmr_lambda=config.mmr_lambda,
        )
        return scorer.search(chunks, (time.perf_counter() - started) * 1000)

    async def _ask(self, scorer: Scorer, config: QueryConfig) -> Scored:
        service = self._services.query_service
        return scorer.answer(await service.query(scorer.question.text, self._collection.id, config))

    async def _warm_up(self) -> None:
        """Load what the first query needs; failures are reported by that query."""
        with suppress(VectorForgeError):
            await self._services.retriever.retrieve("warm up", self._collection.id, 1)

    async def find_targets(self) -> dict[str, list[Target]]:
        """Return the relevant items of the collection for each question id.

        Raises:
            InvalidInputError: The collection has none of the sources that the questions name.
        """
        index = await SourceIndex.of_collection(self._services.documents, self._collection.id)
        targets = {question.id: index.targets(question) for question in self.plan.questions.questions}
        named = [
            target for of_question in targets.values() for target in of_question if target.relevant.source
        ]
        missing = {target.relevant.source for target in named if target.missing}
        if named and all(target.missing for target in named):
            raise InvalidInputError(
                f"The collection {self._collection.name} has none of the sources that the questions name, "
                f"e.g. {named[0].relevant.source}. `vectorforge ingest` adds documents.",
                field="QUESTIONS",
            )
        self.missing_sources = sorted(source for source in missing if source)
        return targets
