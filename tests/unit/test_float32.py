"""Vectors judged all numbers at once, against the same judged one by one."""

import math
from array import array

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vectorforge.float32 import fast_is_finite

_NUMBERS = st.floats(width=32)


@given(st.lists(_NUMBERS, min_size=1, max_size=40))
@example([math.nan])
@example([1.0, -math.inf, 1.0])
@example([0.0, -0.0])
@example([1e-45, 3e-30])
@example([3e38, 1.0])
def test_valid_vector_is_finite_with_nonzero_length(numbers: list[float]) -> None:
    vector = array("f", numbers)
    if fast_is_finite(vector):
        assert 1e-13 < math.hypot(*vector) < 1e14


@given(st.lists(st.floats(-(2.0**39), 2.0**39, width=32), min_size=1, max_size=40))
def test_typical_model_vectors_pass_fast_check(numbers: list[float]) -> None:
    vector = array("f", numbers)
    assert fast_is_finite(vector) is (max(map(abs, vector)) >= 2**-40)


@pytest.mark.parametrize("bad", [math.nan, -math.nan, math.inf, -math.inf, 2.0**41])
@pytest.mark.parametrize("place", [0, 700, 1535])
def test_single_invalid_number_fails_fast_check(bad: float, place: int) -> None:
    vector = array("f", [0.02, -0.03, 0.0] * 512)
    assert fast_is_finite(vector)
    vector[place] = bad
    assert not fast_is_finite(vector)
