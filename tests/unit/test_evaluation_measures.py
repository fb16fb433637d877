"""The measures and their intervals, compared with manual results, trec_eval and SciPy."""

import math
import random

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vectorforge.errors import InvalidInputError
from vectorforge.evaluation.comparison import judge
from vectorforge.evaluation.metrics import (
    Bootstrap,
    Estimate,
    Hit,
    Statistic,
    change,
    citation_precision,
    contains_answer,
    figure,
    measures_at,
    ndcg,
    normalized,
    recall,
    reciprocal_rank,
    with_tolerances,
)

# https://en.wikipedia.org/wiki/Discounted_cumulative_gain#Example: a ranking with the grades 3, 2, 3, 0, 1, 2
# of a collection that also has items of the grades 3 and 2.
HITS = [Hit(1, 3), Hit(2, 2), Hit(3, 3), Hit(5, 1), Hit(6, 2)]
GRADES = [3.0, 2.0, 3.0, 1.0, 2.0, 3.0, 2.0]


class TestMeasures:
    def test_ndcg_matches_hand_computed_values(self) -> None:
        assert ndcg(HITS, GRADES, 6) == pytest.approx(6.861 / 8.740, abs=1e-4)
        assert ndcg([Hit(2)], [1], 10) == pytest.approx(1 / math.log2(3))
        assert ndcg([Hit(1), Hit(3)], [1, 1], 2) == pytest.approx(
            1 / (1 + 1 / math.log2(3))
        )  # the third is out
        assert ndcg([], [1], 10) == 0

    def test_ndcg_of_chunk_with_two_items_is_capped_at_1(self) -> None:
        assert ndcg([Hit(1), Hit(1)], [1, 1], 10) == 1

    def test_recall_matches_hand_computed_values(self) -> None:
        assert recall([Hit(1), Hit(4), Hit(11)], 5, 10) == 2 / 5
        assert recall([Hit(10)], 1, 10) == 1
        assert recall([], 3, 10) == 0

    def test_reciprocal_rank_matches_hand_computed_values(self) -> None:
        assert reciprocal_rank([Hit(7), Hit(4)], 10) == 1 / 4
        assert reciprocal_rank([Hit(11)], 10) == 0
        assert reciprocal_rank([], 10) == 0

    def test_citation_precision_matches_hand_computed_values(self) -> None:
        assert citation_precision([True, False, True], 0) == pytest.approx(2 / 3)
        assert citation_precision([True], 3) == 1 / 4
        assert citation_precision([], 0) == 0

    @pytest.mark.parametrize(
        ("text", "answers", "held"),
        [
            ("It takes two hours.", ["Two hours"], True),
            ("The answer: 1,600 m (a mile).", ["1600 m"], True),
            ("It takes twenty-two hours.", ["two hours"], False),  # SQuAD joins hyphenated words
            ("It is 308.", ["30"], False),  # whole words only
            ("It was ‘often damaging’ – so they say", ["often damaging"], True),
            ("Наука «о жизни»…", ["о жизни"], True),
            ("nothing of it", ["no", "of it"], True),
            ("anything", ["...", "the"], False),  # nothing is left of the answer
            ("", ["x"], False),
            ("他出生于1856年的斯米良。", ["1856年"], True),
            ("ที่กรุงเทพมหานครในปีนั้น", ["กรุงเทพมหานคร"], True),
            ("他出生于斯米良。", ["1856年"], False),
        ],
    )
    def test_contains_answer_matches_expected(self, text: str, answers: list[str], held: bool) -> None:
        assert contains_answer(text, answers) is held

    def test_normalised_text_follows_squad_rules(self) -> None:
        assert normalized("  The  Panthers' defense, an   A-team!") == "panthers defense ateam"


@given(
    ranking=st.permutations(range(12)),
    grades=st.dictionaries(st.integers(0, 15), st.integers(1, 4), min_size=1),
    k=st.sampled_from([1, 3, 5, 10]),
)
@settings(max_examples=200)
def test_ranking_measures_match_trec_eval(ranking: list[int], grades: dict[int, int], k: int) -> None:
    judged = {"q": {f"d{item}": grade for item, grade in grades.items()}}
    found = {"q": {f"d{item}": float(-place) for place, item in enumerate(ranking)}}
    # trec_eval's reciprocal rank looks at the whole ranking, so it is given the first k.
    first = {"q": {f"d{item}": float(-place) for place, item in enumerate(ranking[:k])}}
    theirs = pytrec_eval.RelevanceEvaluator(judged, {f"recall.{k}", f"ndcg_cut.{k}"}).evaluate(found)["q"]
    reciprocal = pytrec_eval.RelevanceEvaluator(judged, {"recip_rank"}).evaluate(first)["q"]["recip_rank"]
    hits = [Hit(rank, grades[item]) for rank, item in enumerate(ranking, start=1) if item in grades]
    assert recall(hits, len(grades), k) == pytest.approx(theirs[f"recall_{k}"])
    assert ndcg(hits, map(float, grades.values()), k) == pytest.approx(theirs[f"ndcg_cut_{k}"])
    assert reciprocal_rank(hits, k) == pytest.approx(reciprocal)


_DRAWN = random.Random(1)
VALUES = tuple(_DRAWN.gauss(0.6, 0.2) for _ in range(300))


class TestIntervals:
    @pytest.mark.parametrize(("statistic", "function"), [("mean", np.mean), ("p50", np.median)])
    def test_estimates_match_scipy_bootstrap(self, statistic: Statistic, function: object) -> None:
        ours = Bootstrap(5_000).estimate(VALUES, statistic)
        theirs = stats.bootstrap(
            (VALUES,), function, n_resamples=5_000, method="percentile", rng=np.random.default_rng(7)
        ).confidence_interval
        assert ours.value == pytest.approx(float(function(VALUES)))  # type: ignore[operator] # NumPy's
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.002)
        assert ours.questions == 300

    def test_mean_interval_width_matches_normal_approximation(self) -> None:
        ours = Bootstrap(5_000).estimate(VALUES, "mean")
        half = 1.96 * float(np.std(VALUES)) / math.sqrt(300)
        assert (ours.high - ours.low) / 2 == pytest.approx(half, rel=0.05)

    def test_two_values_match_hand_computed_interval(self) -> None:
        # Both draws are 0 in a quarter of the cases, both 1 in another: 2.5 % from each end is 0 and 1.
        assert Bootstrap().estimate([0, 1], "mean") == Estimate(0.5, 0.0, 1.0, 2)

    def test_p95_estimate_has_plausible_interval(self) -> None:
        ours = Bootstrap().estimate(list(range(101)), "p95")
        assert ours.value == 95
        assert 85 <= ours.low < 95 < ours.high <= 100

    def test_difference_is_paired(self) -> None:
        better = [value + 0.1 for value in VALUES]
        found = Bootstrap().difference(better, VALUES, "mean")
        assert (found.low, found.value, found.high) == pytest.approx((0.1, 0.1, 0.1))
        reverse = Bootstrap().difference(list(reversed(VALUES)), VALUES, "mean")
        assert reverse.low < -0.01 < 0.01 < reverse.high

    def test_equal_seed_repeats_interval_and_other_seed_changes_it(self) -> None:
        first, again = (Bootstrap(seed=3).estimate(VALUES, "mean") for _ in range(2))
        assert first == again
        assert Bootstrap(seed=4).estimate(VALUES, "mean") != first

    def test_intervals_cover_true_mean_in_about_95_percent(self) -> None:
        """The defining property, on 400 samples from a known distribution."""
        drawn = random.Random(5)
        inside = 0
        for _ in range(400):
            sample = [float(drawn.random() < 0.7) for _ in range(100)]
            estimate = Bootstrap(400).estimate(sample, "mean")
            inside += estimate.low <= 0.7 <= estimate.high
        assert 0.91 <= inside / 400 <= 0.98


class TestVerdicts:
    RECALL = measures_at(10)[0]
    LATENCY = next(m for m in measures_at(10) if m.name == "latency_p95_ms")

    @pytest.mark.parametrize(
        ("low", "high", "verdict"),
        [
            (-0.05, -0.011, "worse"),
            (-0.05, -0.009, "unclear"),  # the interval overlaps the tolerance
            (-0.009, 0.009, "same"),
            (-0.05, 0.05, "unclear"),
            (0.011, 0.05, "better"),
        ],
    )
    def test_interval_entirely_beyond_tolerance_is_worse(self, low: float, high: float, verdict: str) -> None:
        assert judge(Estimate((low + high) / 2, low, high, 100), self.RECALL) == verdict

    def test_higher_latency_is_worse(self) -> None:
        assert judge(Estimate(50, 20, 80, 100), self.LATENCY) == "worse"
        assert judge(Estimate(-50, -80, -20, 100), self.LATENCY) == "better"

    def test_tolerances_apply_by_name_or_to_all_quality_measures(self) -> None:
        changed = {m.name: m.tolerance for m in with_tolerances(measures_at(5), {None: 0.05, "tokens": 100})}
        assert changed["recall@5"] == changed["failures"] == 0.05
        assert changed["tokens"] == 100
        assert changed["latency_p95_ms"] is None
        with pytest.raises(InvalidInputError, match="no measure recall@10; measures: recall@5"):
            with_tolerances(measures_at(5), {"recall@10": 0.1})


def test_estimates_are_formatted_for_display() -> None:
    assert figure(Estimate(0.5, 0.45, 0.55, 9), "share") == "0.500 [0.450, 0.550]"
    assert change(Estimate(-0.01, -0.02, 0.0001, 9), "share") == "-0.010 [-0.020, 0.000]"
    assert change(Estimate(1234.5, 99.4, 2000, 9), "ms") == "+1,234 [+99.4, +2,000]"
