"""Filters of Bedrock's Knowledge Bases, translated and evaluated."""

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vectorforge.api.bedrock.schemas import native_filter
from vectorforge.errors import FilterError
from vectorforge.vectorstore.filters.language import matches
from vectorforge.vectorstore.filters.parse import parse

TEXT = st.text(
    st.one_of(st.sampled_from("ab"), st.sampled_from(["\ud7ff", "\ue000", chr(sys.maxunicode)])), max_size=4
)


def holds(condition: dict[str, Any], **metadata: Any) -> bool:
    return matches(parse(native_filter(condition, "filter")), metadata)


@given(prefix=TEXT.filter(bool), value=TEXT)
def test_starts_with_holds_for_the_prefix_only(prefix: str, value: str) -> None:
    assert holds({"startsWith": {"key": "k", "value": prefix}}, k=value) == value.startswith(prefix)


def test_list_contains_compares_whole_elements() -> None:
    contains = {"listContains": {"key": "tags", "value": "red"}}
    assert holds(contains, tags=["blue", "red"])
    assert not holds(contains, tags=["reddish"])
    assert not holds(contains, tags="reddish")


def test_conditions_are_nested() -> None:
    even = {"orAll": [{"equals": {"key": "n", "value": 2}}, {"equals": {"key": "n", "value": 4}}]}
    condition = {"andAll": [even, {"notEquals": {"key": "n", "value": 4}}]}
    assert [n for n in range(6) if holds(condition, n=n)] == [2]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ({}, "filter must be an object with exactly one operator"),
        ([], "filter must be an object"),
        ({"equals": 1, "in": 2}, "exactly one operator"),
        ({"near": {"key": "a", "value": 1}}, "filter.near is not a supported operator; supported: equals, "),
        ({"x" * 1000: 1}, f"filter.{'x' * 100} is not"),
        ({"equals": {"key": "a"}}, "filter.equals must be an object with key and value"),
        ({"equals": {"key": "", "value": 1}}, "filter.equals.key must be a string of 1 to 100 characters"),
        ({"equals": {"key": "a" * 101, "value": 1}}, "filter.equals.key"),
        ({"equals": {"key": 1, "value": 1}}, "filter.equals.key"),
        ({"equals": {"key": "$or", "value": []}}, "does not begin with $"),
        ({"equals": {"key": "x-amz-bedrock-kb-chunk-id", "value": "a"}}, "Bedrock's own"),
        ({"startsWith": {"key": "a", "value": ""}}, "filter.startsWith.value must be a string"),
        ({"stringContains": {"key": "a", "value": ["b"]}}, "filter.stringContains.value"),
        ({"andAll": [{"equals": {"key": "a", "value": 1}}]}, "filter.andAll must be a list of at least 2"),
        ({"orAll": {"key": "a", "value": 1}}, "filter.orAll must be a list"),
        (
            {"orAll": [{"equals": {"key": "a", "value": 1}}, {"near": 1}]},
            "filter.orAll[1].near is not a supported operator",
        ),
    ],
)
def test_malformed_filter_is_rejected_with_its_operator(condition: Any, message: str) -> None:
    with pytest.raises(FilterError) as refused:
        native_filter(condition, "filter")
    assert message in refused.value.message
    assert len(refused.value.message) < 400
