"""Tuning of the vector weight in hybrid search by a question set."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from vectorforge.bootstrap import TenantServices
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import InvalidInputError
from vectorforge.evaluation.questions import Question
from vectorforge.evaluation.run import Evaluation
from vectorforge.evaluation.scoring import Scorer
from vectorforge.types import Collection

WEIGHTS = tuple(round(step / 10, 1) for step in range(11))
"""Candidate weights: 0 is keyword search only, 1 vector search only."""
MIN_QUESTIONS = 20
"""Minimum number of questions: with fewer, a fold has less than four."""
_FOLDS = 5
_SEED = 1


@dataclass(frozen=True, slots=True)
class Tuning:
    """Quality of each weight, and the expected quality of the chosen one."""

    k: int
    questions: int
    current: float
    """The collection's weight."""
    curve: Mapping[float, float]
    """Mean nDCG@k over all questions, by weight."""
    best: float
    """The best weight; of equal ones the nearest to the current one."""
    current_ndcg: float
    cross_validated: float
    """Mean nDCG@k of held-out questions, an estimate for new questions."""

    @property
    def is_gain(self) -> bool:
        """True if the best weight beats the current one on held-out questions."""
        return self.best != self.current and self.cross_validated > self.current_ndcg


async def tune(
    evaluation: Evaluation,
    services: TenantServices,
    collection: Collection,
    embeddings: EmbeddingProviderRegistry,
    on_progress: Callable[[], None] = lambda: None,
) -> Tuning:
    """Run each question of a plan under each weight; ``on_progress`` is called after each.

    Each question is embedded once; no language model is called, nothing is cached or logged.

    Raises:
        InvalidInputError: Fewer than 20 questions have judgments.
        EmbeddingError: A question could not be embedded.
        DatabaseError: A search failed.
    """
    plan = evaluation.plan
    targets = await evaluation.find_targets()
    questions = [question for question in plan.questions.questions if targets[question.id]]
    if len(questions) < MIN_QUESTIONS:
        raise InvalidInputError(
            f"Tuning needs at least {MIN_QUESTIONS} questions with relevant passages, not {len(questions)}.",
            field="QUESTIONS",
        )
    weights = sorted({*WEIGHTS, collection.dense_weight})
    provider = embeddings.get(collection.embedding_provider)

    async def figures(question: Question) -> list[float]:
        vector = await provider.embed_query(
            collection.query_prefix + question.text, model=collection.embedding_model
        )
        scorer = Scorer(question, targets[question.id], plan.k)
        figures_by_weight = []
        for weight in weights:
            started = time.perf_counter()
            chunks = await services.vector_store.search(
                query_vector=vector,
                query_text=question.text,
                dense_weight=weight,
                top_k=plan.top_k or plan.k,
                collection_id=collection.id,
                metric=collection.distance_metric,
                space=collection.space,
            )
            scored = scorer.search(chunks, (time.perf_counter() - started) * 1000)
            figures_by_weight.append(scored.values["ndcg"])
        on_progress()
        return figures_by_weight

    rows = [dict(zip(weights, await figures(question), strict=True)) for question in questions]
    return learn(rows, collection.dense_weight, plan.k)


def learn(rows: Sequence[Mapping[float, float]], current: float, k: int) -> Tuning:
    """Choose a weight by each question's nDCG@k, and estimate its quality by five-fold cross-validation.

    https://doi.org/10.1111/j.2517-6161.1974.tb00994.x
    """
    shuffled = random.Random(_SEED).sample(range(len(rows)), len(rows))
    held_out: list[float] = []
    for fold in range(_FOLDS):
        tested = shuffled[fold::_FOLDS]
        chosen = _best([rows[n] for n in shuffled if n not in set(tested)], current)
        held_out += [rows[n][chosen] for n in tested]
    curve = _means(rows)
    return Tuning(
        k, len(rows), current, curve, _best(rows, current), curve[current], cross_validated=fmean(held_out)
    )


def _means(rows: Sequence[Mapping[float, float]]) -> dict[float, float]:
    return {weight: fmean(row[weight] for row in rows) for weight in rows[0]}


def _best(rows: Sequence[Mapping[float, float]], current: float) -> float:
    means = _means(rows)
    return max(means, key=lambda weight: (means[weight], -abs(weight - current)))
