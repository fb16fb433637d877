"""Placeholders of the driver, and their replacements for PostgreSQL."""

import json
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from psycopg.adapt import PyFormat

from vectorforge.db.session import parse_json
from vectorforge.db.statements import compiled


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("SELECT 1", "SELECT 1"),
        ("SELECT %s, %s", "SELECT $1, $2"),
        ("SELECT %(b)s, %(a)s, %(b)s", "SELECT $1, $2, $1"),
        ("SELECT 'a' LIKE 'a%%' AND %(a)s", "SELECT 'a' LIKE 'a%' AND $1"),
        ("SELECT '%%s', %s", "SELECT '%s', $1"),
    ],
)
def test_statement_placeholders_become_numbered(query: str, text: str) -> None:
    assert compiled(query).text.decode() == text


def test_statement_formats_follow_placeholders() -> None:
    assert compiled("SELECT %(a)b, %(b)s, %(c)t").formats == (PyFormat.BINARY, PyFormat.AUTO, PyFormat.TEXT)


def test_statement_values_follow_placeholder_order() -> None:
    assert compiled("SELECT %(b)s, %(a)s, %(b)s").values({"a": 1, "b": 2, "c": 3}) == [2, 1]
    assert compiled("SELECT %s, %s").values((1, 2)) == [1, 2]
    assert compiled("SELECT 1").values({"a": 1}) == []


@pytest.mark.parametrize(
    ("query", "values"),
    [("SELECT %(a)s", {"b": 1}), ("SELECT %s", (1, 2)), ("SELECT %s", {"a": 1}), ("SELECT %(a)s", (1,))],
)
def test_mismatched_statement_values_raise(query: str, values: "Sequence[Any] | dict[str, Any]") -> None:
    with pytest.raises(psycopg.ProgrammingError):
        compiled(query).values(values)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [1, 2.50, -0.0, 1e400, 5e-324], "a b": "\\u00e9\\ud83d\\ude00", "n": null, "t": true}',
        "123456789012345678901234567890",
        "0.1234567890123456789",
        f"{'[' * 300}{']' * 300}",
    ],
    ids=["object", "large integer", "many digits", "deeply nested"],
)
def test_parsed_json_is_that_of_the_standard_library(text: str) -> None:
    expected = json.loads(text)
    assert repr(parse_json(text.encode())) == repr(parse_json(text)) == repr(expected)
