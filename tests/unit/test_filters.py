"""The filter language: grammar, limits and the reference evaluator."""

import random
import re
from collections import UserDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.filter_reference import holds
from tests.support.rag.random_filters import RandomFilters, random_metadata
from vectorforge.errors import FilterError, InvalidInputError
from vectorforge.vectorstore.filters.language import matches
from vectorforge.vectorstore.filters.parse import MAX_CONDITIONS, MAX_DEPTH, parse
from vectorforge.vectorstore.filters.sql import FilterCompiler

BOOK = {
    "category": "technology",
    "author": "John Doe",
    "year": 2024,
    "rating": 4.5,
    "draft": False,
    "editor": None,
    "tags": ["ml", "vectors", 7, True],
    "pages": [[1, 2], 3],
    "publisher": {"name": "Acme", "address": {"city": "Graz"}, "lines": [{"city": "Linz"}]},
}


# B-024 B-025 C18
@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (None, True),
        ({}, True),
        ({"category": "technology"}, True),
        ({"author": "John Doe", "year": "2024"}, False),  # typed: a text differs from a number
        ({"author": "John Doe", "year": 2024}, True),
        ({"author": "John Doe", "year": 2023}, False),  # AND, never OR
        ({"year": 2024.0}, True),
        ({"draft": 0}, False),
        ({"draft": False}, True),
        ({"editor": None}, True),
        ({"missing": None}, False),
        ({"category": "Technology"}, False),
        ({"category": "tech"}, False),
        ({"tags": "ml"}, True),
        ({"tags": 7}, True),
        ({"tags": "7"}, False),
        ({"tags": 1}, False),  # the list has true, not 1
        ({"tags": ["ml", "vectors", 7, True]}, True),
        ({"tags": ["vectors", "ml", 7, True]}, False),
        ({"category": ["technology"]}, False),
        ({"pages": 1}, False),  # an element of an element
        ({"pages": 3}, True),
        ({"publisher.name": "Acme"}, True),
        ({"publisher.address.city": "Graz"}, True),
        ({"publisher.lines.city": "Linz"}, False),  # dots do not descend into lists
        ({"publisher.lines.0": "Linz"}, False),
        ({"publisher": "Acme"}, False),
        ({"year": {"$eq": 2024}}, True),
        ({"year": {"$ne": 2024}}, False),
        ({"missing": {"$ne": 2024}}, True),
        ({"tags": {"$ne": "ml"}}, False),
        ({"year": {"$gt": 2023, "$lt": 2025}}, True),
        ({"year": {"$gt": 2024}}, False),
        ({"year": {"$gte": 2024, "$lte": 2024}}, True),
        ({"rating": {"$gt": 4}}, True),
        ({"year": {"$gt": "2000"}}, False),
        ({"category": {"$gt": "Technology"}}, True),  # by code point
        ({"category": {"$lt": 9}}, False),
        ({"draft": {"$lt": 1}}, False),
        ({"tags": {"$gt": "a"}}, False),
        ({"missing": {"$lt": 1}}, False),
        ({"missing": {"$not": {"$lt": 1}}}, True),
        ({"year": {"$not": {"$gt": 2024}}}, True),
        ({"year": {"$in": [2023, 2024]}}, True),
        ({"year": {"$in": ["2024"]}}, False),
        ({"year": {"$in": []}}, False),
        ({"tags": {"$in": ["x", "ml"]}}, True),
        ({"year": {"$nin": [2024]}}, False),
        ({"missing": {"$nin": [2024]}}, True),
        ({"year": {"$nin": []}}, True),
        ({"editor": {"$exists": True}}, True),
        ({"editor": {"$exists": False}}, False),
        ({"missing": {"$exists": True}}, False),
        ({"missing": {"$exists": False}}, True),
        ({"publisher.address": {"$exists": True}}, True),
        ({"category": {"$contains": "techno"}}, True),
        ({"category": {"$contains": "Techno"}}, False),
        ({"category": {"$contains": 1}}, False),
        ({"tags": {"$contains": "ml"}}, True),
        ({"tags": {"$contains": "m"}}, False),
        ({"year": {"$contains": 2024}}, False),
        ({"$and": [{"year": 2024}, {"draft": True}]}, False),
        ({"$or": [{"year": 1}, {"draft": False}]}, True),
        ({"$or": [{"year": 1}, {"draft": True}]}, False),
        ({"$not": {"year": 2024}}, False),
        ({"$not": {"missing": 2024}}, True),
        ({"category": "technology", "$or": [{"year": 1}, {"rating": {"$lt": 1}}]}, False),
    ],
)
def test_filter_matches_expected_metadata(filters: dict[str, Any] | None, expected: bool) -> None:
    assert matches(parse(filters), BOOK) is expected


def nested(depth: int) -> dict[str, Any]:
    return {"year": 1} if depth == 1 else {"$not": nested(depth - 1)}


# C18
@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"year": {"$near": 2024}}, "year.$near"),
        ({"year": {"gt": 2024}}, "year.gt"),
        ({"$nor": [{"year": 1}]}, "$nor"),
        ({"year": {}}, "year"),
        ({"$or": []}, "$or"),
        ({"$or": [{}]}, "$or[0]"),  # an empty branch would make the whole filter vanish
        ({"$not": {}}, "$not"),
        ({"$and": {"year": 1}}, "$and"),
        ({"year": {"$in": 2024}}, "year.$in"),
        ({"year": {"$in": [[1]]}}, "year.$in[0]"),
        ({"year": {"$gt": True}}, "year.$gt"),
        ({"year": {"$gt": None}}, "year.$gt"),
        ({"year": {"$exists": 1}}, "year.$exists"),
        ({"year": {"$contains": ["a"]}}, "year.$contains"),
        ({"year": {"$eq": {"a": 1}}}, "year.$eq"),
        ({"year": {"$not": 1}}, "year.$not"),
        ({"year": float("nan")}, "year"),
        ({"year": float("inf")}, "year"),
        ({"year": 10**400}, "year"),
        ({"year": object()}, "year"),
        ({"year": "a\0b"}, "year"),
        ({"year": "\ud800"}, "year"),
        ({"ye\0ar": 1}, "ye?ar"),
        ({"ye\ud800ar": 1}, "ye?ar"),  # the error itself must be encodable
        ({"a..b": 1}, "a..b"),
        ({"": 1}, "filters."),
        ({".".join("abcdefghijk"): 1}, "11 names"),
        ({1: 1}, "filters.int"),
        ({"k" * 201: 1}, "201 characters"),
        ({"year": "x" * 2001}, "2001 characters"),
        ({"year": {"$in": [0] * 1001}}, "year.$in"),
        ({f"k{number}": 1 for number in range(MAX_CONDITIONS + 1)}, f"at most {MAX_CONDITIONS}"),
        ({f"k{number}": {"$contains": "x"} for number in range(MAX_CONDITIONS)}, "characters as SQL"),
        (nested(MAX_DEPTH + 1), "$not"),
        ({"year": {"$not": {"$not": {"$not": nested(MAX_DEPTH - 2)}}}}, "year.$not"),
    ],
)
def test_invalid_filter_error_names_location(filters: Any, names: str) -> None:
    with pytest.raises(FilterError) as refused:
        parse(filters)
    assert names in str(refused.value)
    assert refused.value.field is not None
    assert refused.value.field.startswith("filters")
    assert isinstance(refused.value, InvalidInputError)


def test_filter_limits_are_inclusive() -> None:
    parse(nested(MAX_DEPTH))
    parse({f"k{number}": 1 for number in range(MAX_CONDITIONS)})
    parse({"k" * 200: {"$in": ["x" * 2000] * 1000}})


def test_filter_numbers_compare_by_decimal_text() -> None:
    # 10**23 and 1e23 differ as binary numbers, but JSON and PostgreSQL's numeric write both the same.
    assert matches(parse({"n": 10**23}), {"n": 1e23})
    assert not matches(parse({"n": 2**53}), {"n": 2**53 + 1})
    assert matches(parse({"n": 0}), {"n": -0.0})


def test_filter_sql_passes_keys_and_values_as_parameters() -> None:
    filters = {
        "secret.key": {"$gt": "secret", "$contains": "secret", "$ne": ["secret"], "$in": ["secret"]},
        "$or": [{"secret": 4711}, {"secret": {"$lte": 4711}}],
    }
    compiler = FilterCompiler("metadata")
    sql = compiler.compile(parse(filters))
    assert "secret" not in sql
    assert "4711" not in sql
    assert set(re.findall(r"%\((\w+)\)s", sql)) == set(compiler.params)
    # A database may sort "a" before "B"; the reference does not.
    assert sql.count('COLLATE "C"') == 2


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["a", "a.b", "$and", "$or", "$not", "$in", "$gt", "$eq", "$exists", "$contains", "$x"]
            )
            | st.text(max_size=3),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(filters=anything, metadata=st.dictionaries(st.text(max_size=2), anything, max_size=3))
def test_any_filter_parses_or_raises_filter_error(filters: Any, metadata: dict[str, Any]) -> None:
    try:
        condition = parse(filters)
    except FilterError:
        return
    assert matches(condition, {}) in (True, False)
    finite = {key: value for key, value in metadata.items() if not isinstance(value, float)}
    assert matches(condition, finite) in (True, False)


def test_cached_filter_is_distinct_from_equal_looking_values() -> None:
    """Values that are equal for a dict are different conditions, and a cached error is raised again."""
    values = [1, True, 1.0, "1", None, [1], [True]]
    for _ in range(2):
        assert [repr(parse({"a": value})) for value in values] == [
            repr(parse(UserDict({"a": value}))) for value in values
        ]
        with pytest.raises(FilterError):
            parse({"a": float("nan")})
        with pytest.raises(FilterError):
            parse({"a": {"$gt": True}})
    assert len({repr(parse({"a": value})) for value in values}) == len(values)


@pytest.mark.parametrize("seed", range(50))
def test_random_filters_match_documented_semantics(seed: int) -> None:
    chance = random.Random(seed)
    stored = [random_metadata(chance) for _ in range(8)]
    made = RandomFilters(chance, stored)
    for condition in (made.make() for _ in range(20)):
        parsed = parse(condition)
        assert [matches(parsed, one) for one in stored] == [holds(condition, one) for one in stored], (
            condition
        )
