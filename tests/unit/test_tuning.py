"""Tuning the weight of vectors by the measure of each weight for each query."""

import random

import pytest

from vectorforge.evaluation.tuning import WEIGHTS, learn


def test_learn_selects_weight_best_for_all_questions() -> None:
    rows = [{weight: 1 - abs(weight - 0.7) for weight in WEIGHTS}] * 25
    tuning = learn(rows, 0.5, 10)
    assert (tuning.best, tuning.current, tuning.questions, tuning.k) == (0.7, 0.5, 25, 10)
    assert tuning.current_ndcg == pytest.approx(0.8)
    assert tuning.cross_validated == pytest.approx(1.0)
    assert tuning.is_gain
    assert list(tuning.curve) == list(WEIGHTS)


def test_equal_weights_stay_near_current_weight() -> None:
    tuning = learn([dict.fromkeys(WEIGHTS, 0.5)] * 25, 0.3, 10)
    assert (tuning.best, tuning.is_gain) == (0.3, False)
    from_six_on = [{weight: float(weight >= 0.6) for weight in WEIGHTS}] * 25
    assert learn(from_six_on, 0.5, 10).best == 0.6


def test_random_scores_are_not_reported_as_gain() -> None:
    """By chance some weight is the best; on other queries it is no better."""
    draw = random.Random(1)
    rows = [[{weight: draw.random() for weight in WEIGHTS} for _ in range(50)] for _ in range(40)]
    tunings = [learn(questions, 0.5, 10) for questions in rows]
    promised = sum(tuning.curve[tuning.best] for tuning in tunings) / 40
    mean_gain = sum(tuning.cross_validated for tuning in tunings) / 40
    assert promised > 0.55
    assert mean_gain == pytest.approx(0.5, abs=0.03)


def test_cross_validation_holds_out_each_question_once() -> None:
    rows = [{0.0: float(n == 0), 0.5: 0.0, 1.0: float(n != 0)} for n in range(21)]
    assert learn(rows, 0.5, 10).cross_validated == pytest.approx(20 / 21)
