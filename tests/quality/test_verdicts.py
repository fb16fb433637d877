"""Verdicts on sentences about the project's own documents, true and with a single fact changed.

The figures of other documents: ``python -m tests.quality.verdict_figures`` and docs/use/answer-quality.md.
"""

from collections import Counter
from collections.abc import Mapping

import pytest

from tests.quality.verdict_cases import CHANGES, Case, paraphrase_cases
from tests.quality.verdict_figures import own_cases, precision_and_recall

pytestmark = pytest.mark.slow

PRECISION = 0.95
RECALL = 0.85
MOST_PARAPHRASES_REJECTED = 0.05
MOST_FALSE_SUPPORTED = {"wrong chunk": 0.05, "added content": 0.05}


@pytest.fixture(scope="module")
def judged() -> list[tuple[Case, str]]:
    cases = [*own_cases(), *paraphrase_cases("unseen", "fresh")]
    return [(case, case.verdict()) for case in cases]


@pytest.fixture(scope="module")
def counts(judged: list[tuple[Case, str]]) -> Mapping[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for case, verdict in judged:
        found.setdefault(case.kind, Counter())[verdict] += 1
    return found


def test_single_changed_fact_is_unsupported(judged: list[tuple[Case, str]]) -> None:
    precision, recall = precision_and_recall(judged)
    assert precision >= PRECISION
    assert recall >= RECALL


def test_true_paraphrase_is_rarely_unsupported(counts: Mapping[str, Counter[str]]) -> None:
    found = counts["paraphrase"]
    assert found.total() >= 60
    assert found["unsupported"] <= MOST_PARAPHRASES_REJECTED * found.total()


@pytest.mark.parametrize("kind", MOST_FALSE_SUPPORTED)
def test_other_false_sentence_is_rarely_supported(kind: str, counts: Mapping[str, Counter[str]]) -> None:
    assert counts[kind]["supported"] <= MOST_FALSE_SUPPORTED[kind] * counts[kind].total()


def test_every_kind_has_cases(counts: Mapping[str, Counter[str]]) -> None:
    assert counts["verbatim"]["unsupported"] == 0
    kinds = {*CHANGES, "respelled", "wrong chunk", "added content", "false paraphrase"}
    # Few sentences have dates: the half of them whose facts are changed may have none.
    assert kinds - {"date"} < set(counts)
    assert sum(map(Counter.total, counts.values())) >= 400
