"""Stop sequences in pieces of any size, and the check of JSON answers."""

from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

import pytest

from vectorforge.deadline import Deadline
from vectorforge.pipeline.json_output import InvalidJson, check_json
from vectorforge.pipeline.output_format import cut_at_stop, until_stop
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import JsonFormat, QueryConfig
from vectorforge.retriever.base import CollectionChoice

TEXT = "aab aaab aaaab\nThe end"


def run_with(*stop: str) -> QueryRun:
    choice = CollectionChoice.of(uuid4())
    return QueryRun("q", choice, QueryConfig(stop=stop), uuid4(), Deadline.never(), buffered=False)


async def pieces(text: str, size: int) -> AsyncGenerator[str, None]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


@pytest.mark.parametrize(
    "stop", [["aaab"], ["\n"], ["x"], ["end", "The e"], ["b aaaab", "aaaa"], ["The end!"]]
)
async def test_stop_sequence_is_found_however_the_text_is_cut(stop: list[str]) -> None:
    ends = {TEXT.find(one) + len(one): TEXT.find(one) for one in stop if one in TEXT}
    expected = TEXT[: ends[min(ends)]] if ends else TEXT
    assert cut_at_stop(TEXT, stop) == expected
    for size in range(1, len(TEXT)):
        found = "".join([text async for text in until_stop(run_with(*stop), pieces(TEXT, size))])
        assert found == expected, size


async def test_text_that_begins_no_stop_sequence_is_not_held_back() -> None:
    passed = [text async for text in until_stop(run_with("\n\n"), pieces("abc\nd", 1))]
    assert passed[:3] == ["a", "b", "c"]


def error_of(value: Any, schema: dict[str, Any]) -> str | None:
    try:
        check_json(value, JsonFormat(schema))
    except InvalidJson as exc:
        return str(exc)
    return None


def test_json_is_checked_against_its_schema_and_local_references() -> None:
    schema = {"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}}
    assert error_of({"a": 1}, schema) is None
    assert error_of({"a": "x"}, schema) == "$.a: 'x' is not of type 'integer'"


def test_schema_that_multiplies_references_ends() -> None:
    """A schema of 30 lines would otherwise be followed a billion times."""
    doubled = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(30)}
    schema = {"$defs": {**doubled, "l30": {}}, "$ref": "#/$defs/l0"}
    assert error_of({}, schema) == "it has too many parts."


def test_pattern_of_a_caller_is_not_run() -> None:
    schema = {"properties": {"a": {"type": "string", "pattern": "(a+)+$"}}}
    assert error_of({"a": "a" * 40 + "!"}, schema) is None


def test_missing_reference_fetches_nothing() -> None:
    assert "cannot be checked" in (error_of({}, {"$ref": "#/$defs/missing"}) or "")
