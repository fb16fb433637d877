"""Cleaning a query."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vectorforge.errors import InvalidInputError
from vectorforge.retriever.base import MAX_QUERY_LENGTH, QueryPreprocessor


def test_query_whitespace_is_trimmed_and_collapsed() -> None:  # C39
    assert QueryPreprocessor().preprocess("  what   is\tthis \n thing ") == "what is\tthis \n thing"


def test_letters_of_query_are_composed() -> None:
    assert QueryPreprocessor().preprocess("Ru\u0308ckgabe") == "R\u00fcckgabe"


@pytest.mark.parametrize("query", ["", "   ", "\n\t", "\x00"])
def test_empty_query_is_rejected(query: str) -> None:
    with pytest.raises(ValueError, match=r"^Query cannot be empty$") as caught:
        QueryPreprocessor().preprocess(query)
    assert isinstance(caught.value, InvalidInputError)
    assert caught.value.field == "query"


def test_long_query_is_cut_with_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert MAX_QUERY_LENGTH == 10_000
    clean = QueryPreprocessor().clean("x" * 10_001)
    assert clean.text == "x" * 10_000
    assert clean.truncated
    assert caplog.messages == ["Query truncated from 10001 to 10000 chars"]


@given(st.text(max_size=300))
def test_preprocessing_twice_is_idempotent(query: str) -> None:  # C39
    preprocessor = QueryPreprocessor(max_query_length=50)
    try:
        once = preprocessor.preprocess(query)
    except InvalidInputError:
        return
    assert preprocessor.preprocess(once) == once
    assert len(once) <= 50
    once.encode()
    assert "\x00" not in once
