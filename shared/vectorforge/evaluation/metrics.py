"""Measures of an evaluation: definitions, tolerances, intervals, formatting, and scores of one question.

The scores of one question are pure functions from 0 (bad) to 1 (good).
"""

import math
import re
import string
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vectorforge.errors import InvalidInputError
from vectorforge.llm.providers.patterns import UNSPACED

Statistic: TypeAlias = Literal["mean", "p50", "p95"]
Unit: TypeAlias = Literal["share", "ms", "tokens", "usd"]

DEFAULT_TOLERANCE = 0.01
"""Tolerance of every quality measure, as a share."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a run."""

    name: str
    column: str
    """Column of each question's values that it aggregates."""
    statistic: Statistic
    unit: Unit
    higher_is_better: bool
    meaning: str
    tolerance: float | None = None
    """Loss above which it counts as a regression; None: never."""


def measures_at(k: int) -> list[Measure]:
    """Return all measures; those of rankings use the first ``k`` ranks."""
    merits = [
        (f"recall@{k}", "recall", f"relevant items among the first {k}"),
        (f"mrr@{k}", "mrr", "one over the rank of the first relevant item"),
        (f"ndcg@{k}", "ndcg", "relevant items, the higher up the better"),
        (f"answer_in_passages@{k}", "answer_in_passages", "an expected answer occurs in the passages"),
        ("citation_precision", "citation_precision", "citations that name a relevant passage"),
        ("answer_containment", "answer_containment", "an expected answer occurs in the answer"),
        ("refusals", "refusal", "questions without an answer that are declined"),
        ("corrections", "correction", "false premises that are corrected or declined"),
        ("disagreements", "disagreement", "disagreeing documents that are both cited"),
    ]
    faults = [
        ("false_refusals", "false_refusal", "questions with an answer that are declined"),
        ("failures", "failed", "questions that failed"),
        ("degraded", "degraded", "degraded answers"),
    ]
    return [
        *(
            Measure(name, column, "mean", "share", is_merit, meaning, DEFAULT_TOLERANCE)
            for is_merit, shares in ((True, merits), (False, faults))
            for name, column, meaning in shares
        ),
        Measure("latency_p50_ms", "latency_ms", "p50", "ms", False, "half the questions take longer"),
        Measure("latency_p95_ms", "latency_ms", "p95", "ms", False, "one question in twenty takes longer"),
        Measure("tokens", "tokens", "mean", "tokens", False, "tokens of prompt and answer, a question"),
        Measure("cost_usd", "cost_usd", "mean", "usd", False, "cost of a question by the price list"),
    ]


def with_tolerances(measures: Sequence[Measure], given: Mapping[str | None, float]) -> list[Measure]:
    """Return the measures with these tolerances by name, 0 or more; None for every quality measure.

    Raises:
        InvalidInputError: A measure does not exist; the text lists all.
    """
    names = [measure.name for measure in measures]
    if unknown := [name for name in given if name is not None and name not in names]:
        raise InvalidInputError(
            f"--tolerance: there is no measure {unknown[0]}; measures: {', '.join(names)}.",
            field="--tolerance",
        )
    every = given.get(None)
    changed = []
    for measure in measures:
        general = measure.tolerance if every is None or measure.tolerance is None else every
        changed.append(replace(measure, tolerance=given.get(measure.name, general)))
    return changed


_CELLS = 4_000_000
"""Values per batch of resamples: 32 MB."""
_TAIL = (1 - 0.95) / 2 * 100


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its 95 % confidence interval."""

    value: float
    low: float
    high: float
    questions: int
    """Number of questions behind the figure."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Percentile bootstrap over questions; equal inputs return equal intervals.

    Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 13; for retrieval measures Sakai
    2006, https://doi.org/10.1145/1148170.1148261. Whole questions are resampled, so two columns stay paired.

    Args:
        resamples: Number of resamples, 100 or more; 2,000 are enough for 95 %.
        seed: Seed of the random generator.
    """

    resamples: int = 2_000
    seed: int = 20_261_122

    def estimate(self, values: Sequence[float], statistic: Statistic) -> Estimate:
        """Estimate the mean or a percentile of values, one for each question, at least one."""
        return self._estimate(np.asarray([values], dtype=np.float64), statistic)

    def difference(
        self, candidate: Sequence[float], reference: Sequence[float], statistic: Statistic
    ) -> Estimate:
        """Estimate the candidate's statistic minus the reference's, question by question."""
        return self._estimate(np.asarray([candidate, reference], dtype=np.float64), statistic)

    def _estimate(self, columns: NDArray[np.float64], statistic: Statistic) -> Estimate:
        count = columns.shape[1]
        generator = np.random.default_rng(self.seed)
        batch = max(1, _CELLS // count)
        drawn = []
        for first in range(0, self.resamples, batch):
            places = generator.integers(0, count, size=(min(batch, self.resamples - first), count))
            drawn.append(_contrast(columns.take(places, axis=1), statistic))
        low, high = np.percentile(np.concatenate(drawn), [_TAIL, 100 - _TAIL])
        return Estimate(float(_contrast(columns, statistic)), float(low), float(high), count)


def _contrast(columns: NDArray[np.float64], statistic: Statistic) -> NDArray[np.float64]:
    """Return the statistic of the first column, minus that of the second if there is one."""
    if statistic == "mean":
        figures = columns.mean(axis=-1)
    else:
        figures = np.percentile(columns, {"p50": 50, "p95": 95}[statistic], axis=-1)
    return np.asarray(figures[0] - figures[1:].sum(axis=0))


_WRITE: Mapping[Unit, Callable[[float], str]] = {
    "share": lambda value: f"{value:.3f}",
    "ms": lambda value: f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}",
    "tokens": lambda value: f"{value:,.0f}",
    "usd": lambda value: f"{value:.6f}",
}


def number(value: float, unit: Unit) -> str:
    """Format a value."""
    return _WRITE[unit](value)


def signed(value: float, unit: Unit) -> str:
    """Format a value with its sign; without one if it is formatted as 0."""
    text = number(abs(value), unit)
    if not any(digit in "123456789" for digit in text):
        return text
    return f"{'-' if value < 0 else '+'}{text}"


def figure(estimate: Estimate, unit: Unit, write: Callable[[float, Unit], str] = number) -> str:
    """Format a value with its interval: ``0.512 [0.480, 0.541]``."""
    value, low, high = (write(v, unit) for v in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]"


def change(estimate: Estimate, unit: Unit) -> str:
    """Format a difference with its interval, including signs: ``-0.031 [-0.052, -0.010]``."""
    return figure(estimate, unit, signed)


@dataclass(frozen=True, slots=True)
class Hit:
    """First occurrence of a relevant item in a ranking."""

    rank: int
    """From 1."""
    grade: float = 1.0


def recall(hits: Iterable[Hit], relevant: int, k: int) -> float:
    """Share of the relevant items that occur among the first k.

    Manning, Raghavan and Schütze 2008, Introduction to Information Retrieval, section 8.4:
    https://nlp.stanford.edu/IR-book/html/htmledition/evaluation-of-ranked-retrieval-results-1.html
    """
    return sum(hit.rank <= k for hit in hits) / relevant


def reciprocal_rank(hits: Iterable[Hit], k: int) -> float:
    """One over the rank of the first relevant item, 0 when there is none among the first k.

    Its mean is MRR: Voorhees 1999, The TREC-8 Question Answering Track Report,
    https://trec.nist.gov/pubs/trec8/papers/qa_report.pdf
    """
    first = min((hit.rank for hit in hits), default=math.inf)
    return 1 / first if first <= k else 0.0


def ndcg(hits: Iterable[Hit], grades: Iterable[float], k: int) -> float:
    """Discounted cumulative gain over that of the best possible ranking, both of the first k.

    The gain is the grade, the discount log2(rank + 1), as trec_eval's ``ndcg_cut`` has it: Järvelin and
    Kekäläinen 2002, Cumulated gain-based evaluation of IR techniques,
    https://doi.org/10.1145/582415.582418. A chunk with several relevant items gains all of them, so
    the result is cut at 1. ``grades`` are those of all relevant items, at least one.
    """
    best = sorted(grades, reverse=True)[:k]
    ideal = sum(grade / math.log2(rank + 1) for rank, grade in enumerate(best, start=1))
    gained = sum(hit.grade / math.log2(hit.rank + 1) for hit in hits if hit.rank <= k)
    return min(1.0, gained / ideal)


def citation_precision(cited: Sequence[bool], invalid: int) -> float:
    """Share of an answer's citations that name a relevant chunk.

    Citation precision of ALCE, with human judgments instead of a model's: Gao et al. 2023,
    https://arxiv.org/abs/2305.14627. An answer without citations scores 0, because it cannot be verified.
    ``cited`` has for each citation whether its chunk is relevant; ``invalid`` ones have no chunk.
    """
    total = len(cited) + invalid
    return sum(cited) / total if total else 0.0


def contains_answer(text: str, answers: Iterable[str]) -> bool:
    """Return True if an expected answer occurs in the text, word for word after normalization.

    DPR's accuracy of retrieved chunks (Karpukhin et al. 2020, https://arxiv.org/abs/2004.04906), with
    SQuAD's normalisation. Scripts without spaces are compared by character, as MLQA's are.
    """
    words = f" {normalized(text)} "
    return any(
        expected.replace(" ", "") in words.replace(" ", "")
        if UNSPACED.search(expected)
        else f" {expected} " in words
        for expected in map(normalized, answers)
        if expected
    )


def normalized(text: str) -> str:
    """Lower case, without punctuation of any script, English articles and superfluous blanks.

    ``normalize_answer`` of SQuAD's official evaluation script (Rajpurkar et al. 2016,
    https://arxiv.org/abs/1606.05250), with MLQA's larger set of punctuation (Lewis et al. 2020,
    https://arxiv.org/abs/1910.07475): typographic quotes are as common as ASCII's.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


_ARTICLES = re.compile(r"\b(a|an|the)\b")


class _WithoutPunctuation(dict[int, int | None]):
    """For ``str.translate``: every character as it is, punctuation as nothing."""

    def __missing__(self, code: int) -> int | None:
        character = chr(code)
        is_punctuation = character in string.punctuation or unicodedata.category(character).startswith("P")
        self[code] = None if is_punctuation else code
        return self[code]


_PUNCTUATION = _WithoutPunctuation()
