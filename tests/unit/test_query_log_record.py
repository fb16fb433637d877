"""The record in transit: its content, truncation, and recovery from a log."""

import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rag.query_logs import make_log, message
from vectorforge.aws.query_log_lines import find_records, names_records
from vectorforge.aws.query_log_record import (
    QueryLogPointer,
    QueryLogRecord,
    cut_to,
    parse_message,
    pointer_fields,
    record_fields,
    to_json,
)
from vectorforge.db.tenant_database import storable_text
from vectorforge.errors import InvalidInputError

texts = st.text(alphabet=st.characters(exclude_categories=()))


@given(query=texts, answer=texts)
def test_record_round_trip_preserves_storable_text(query: str, answer: str) -> None:  # C01, A-114
    log = make_log(query_text=query, generated_response=answer)
    line = message("tenant", log)
    assert line.isascii()
    assert "\n" not in line
    found = parse_message(line)
    assert isinstance(found, QueryLogRecord)
    assert found.tenant_id == "tenant"
    expected = replace(log, query_text=storable_text(query), generated_response=storable_text(answer))
    assert found.query_log() == expected


@given(text=texts)
def test_unstorable_characters_are_replaced_one_for_one(text: str) -> None:  # C01; fault 34
    stored = storable_text(text)
    assert "\0" not in stored
    stored.encode()
    if not any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        assert stored == text.replace("\0", "\ufffd")


@pytest.mark.parametrize(
    ("text", "stored"),
    [("\ud800", "�"), ("a\udc00\ud800b", "a��b"), ("\ud83d\ude42", "🙂"), ("\ufeffa", "\ufeffa"), ("", "")],
)
def test_surrogates_are_replaced_or_combined(text: str, stored: str) -> None:
    assert storable_text(text) == stored


@given(query=texts, answer=texts, repeat=st.integers(1, 3000), limit=st.integers(100_000, 200_000))
def test_long_record_is_truncated_to_limit_with_notice(
    query: str, answer: str, repeat: int, limit: int
) -> None:  # C01
    fields = record_fields("tenant", make_log(query_text=query * repeat, generated_response=answer * repeat))
    whole, line = to_json(fields), cut_to(fields, limit)
    assert len(line) <= limit
    assert line.isascii()
    found = parse_message(line)
    assert isinstance(found, QueryLogRecord)
    if len(whole) <= limit:
        assert line == whole
        return
    assert "characters left out by the query log]" in line
    for name in ("query_text", "generated_response"):
        logged_text, mark, _ = getattr(found, name).rpartition("\n[")
        assert fields[name].startswith(logged_text) if mark else True


def test_longer_text_is_truncated_first() -> None:
    fields = record_fields("tenant", make_log(query_text="q" * 1000, generated_response="a" * 300_000))
    found = parse_message(cut_to(fields, 100_000))
    assert isinstance(found, QueryLogRecord)
    assert found.query_text == "q" * 1000
    assert found.generated_response.endswith(" characters left out by the query log]")


def test_largest_record_fits_on_one_line() -> None:
    ids = [uuid4() for _ in range(1000)]
    log = make_log(retrieved_chunk_ids=ids, used_chunk_ids=ids, generated_response="\0" * 1_000_000)
    assert len(cut_to(record_fields("x" * 128, log), 100_000)) <= 100_000


GOOD = record_fields("tenant", make_log(query_text="CANARY"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tenant_id": "x" * 129}, "tenant_id: value_error"),
        ({"tenant_id": "a\0"}, "tenant_id: value_error"),
        ({"id": "CANARY"}, "id: uuid_parsing"),
        ({"collection_id": None}, "collection_id: uuid_type"),
        ({"outcome": "CANARY"}, "outcome: literal_error"),
        ({"query_text": None}, "query_text: string_type"),
        ({"prompt_tokens": 2**31}, "prompt_tokens: less_than_equal"),
        ({"completion_tokens": -1}, "completion_tokens: greater_than_equal"),
        ({"latency_ms": float("inf")}, "latency_ms: finite_number"),
        ({"created_at": "2026-11-22T10:00:00"}, "created_at: timezone_aware"),
        ({"created_at": "0001-01-01T00:00:00+14:00"}, "created_at: greater_than_equal"),
        ({"created_at": "9999-12-31T23:59:59-14:00"}, "created_at: less_than"),
        ({"retrieved_chunk_ids": ["CANARY"]}, "retrieved_chunk_ids.0: uuid_parsing"),
        ({"used_chunk_ids": [str(uuid4())] * 1001}, "used_chunk_ids: too_long"),
        ({"version": 2}, "version: literal_error"),
    ],
)
def test_invalid_record_error_names_reason_and_hides_values(
    changes: dict[str, Any], reason: str
) -> None:  # C01
    with pytest.raises(InvalidInputError) as caught:
        parse_message(json.dumps({**GOOD, **changes}))
    assert caught.value.message == f"The query log is not usable: {reason}."
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "CANARY", "[]", "null", "1", '{"type": "CANARY"}', "[" * 100_000, b"\xff"]
)
def test_non_record_message_is_rejected(text: str | bytes) -> None:
    with pytest.raises(InvalidInputError):
        parse_message(text)


def test_unknown_fields_are_ignored() -> None:
    assert isinstance(parse_message(to_json({**GOOD, "mood": "good"})), QueryLogRecord)


def test_pointer_keys_distinguish_start_and_end() -> None:
    end = pointer_fields(record_fields("a/b é", make_log()))
    start = pointer_fields(record_fields("a/b é", make_log(outcome="started")))
    assert end["key"].startswith("query-logs/a%2Fb%20%C3%A9/20")
    assert (end["key"][-11:], start["key"][-13:]) == ("-ended.json", "-started.json")
    found = parse_message(to_json(end))
    assert isinstance(found, QueryLogPointer)
    assert (found.tenant_id, found.key) == ("a/b é", end["key"])


LINE = message("tenant", make_log(query_text='{"type":"vectorforge.query_log"} "message": "x" \n'))
NESTED = json.dumps({"timestamp": 1, "message": LINE})


@pytest.mark.parametrize(
    ("line", "count"),
    [
        (LINE, 1),
        (f"2026-11-22T10:00:00.123000+00:00 2026/11/22/[$LATEST]0123abcd {LINE}\n", 1),  # aws logs tail
        (f"2026-11-22T10:00:00 {LINE}\n", 1),  # aws logs tail --format short
        (f"2026-11-22T10:00:00.123Z {LINE} trailing", 1),  # export to S3
        (LINE + LINE, 2),
        (NESTED, 1),
        (f'            "message": {json.dumps(LINE)},\n', 1),  # filter-log-events, indented
        (json.dumps([{"@timestamp": "x", "@message": LINE + "\n"}] * 2), 2),  # Logs Insights
        (json.dumps({"messageType": "DATA_MESSAGE", "logEvents": [{"id": "1", "message": LINE}] * 3}), 3),
        (json.dumps({"message": NESTED}), 1),
        (LINE.replace('{"type":"', '{ "type": "'), 1),
        ("START RequestId: 1", 0),
        (json.dumps({"message": "a question about vectorforge.query_log"}), 0),
        (to_json(pointer_fields(GOOD)), 0),
        ("", 0),
        ('2026-11-22 10:00:00.123,"' + LINE.replace('"', '""') + '"', 1),  # Logs Insights as CSV
        ('"' + LINE.replace('"', '""') + "\n", 1),  # its message ended in a newline, and so the line
        (json.dumps([[{"field": "@timestamp", "value": "x"}, {"field": "@message", "value": LINE}]]), 1),
        (f'                "value": {json.dumps(LINE)}\n', 1),  # get-query-results, indented
        (json.dumps({"id": "1", "timestamp": 1, "message": LINE}) * 2, 2),  # Firehose, not separated
    ],
)
def test_records_are_found_in_cloudwatch_lines(line: str, count: int) -> None:  # C01
    found = list(find_records(line))
    assert len(found) == count
    for text in found:
        assert json.loads(text) == json.loads(LINE)


@pytest.mark.parametrize(
    "line",
    [
        LINE[:-10],
        f"2026-11-22T10:00:00 {LINE[:200]}",
        f'    "message": {json.dumps(LINE)}'[:-20],
        json.dumps({"message": LINE})[:-20],
        '    "type": "vectorforge.query_log",',
    ],
)
def test_broken_record_is_returned_for_counting(line: str) -> None:
    (found,) = find_records(line)
    with pytest.raises(InvalidInputError):
        parse_message(found)


def own_log_line(text: str) -> str:
    """Return a function's log line that contains a user's text."""
    return json.dumps({"level": "INFO", "location": "f:1", "message": text, "timestamp": "x", "service": "q"})


@pytest.mark.parametrize(
    "line",
    [
        f"The question was {LINE}",
        f"2026-11-22T10:00:00Z The question was {LINE}",
        f"2026-11-22T10:00:00Z INFO {LINE}",
        own_log_line(LINE),
        own_log_line(f"The question was {LINE}"),
        own_log_line(NESTED),
        own_log_line("x\n" + LINE),
        "2026-11-22T10:00:00Z " + own_log_line(LINE),
        json.dumps({"timestamp": 1, "message": own_log_line(LINE)}),
        json.dumps({"timestamp": 1, "message": f"The question was {LINE}"}),
        json.dumps({"timestamp": 1, "message": "The question was\n" + LINE}),
        json.dumps({"level": "INFO", "events": [{"message": LINE}]}),
        f'{{"level":"INFO","record":{LINE}}}',
        '1,"' + own_log_line(LINE).replace('"', '""') + '"',
        '1,"The question was ' + LINE.replace('"', '""') + '"',
    ],
)
def test_record_inside_user_text_is_ignored(line: str) -> None:  # C17
    assert list(find_records(line)) == []
    assert names_records(line)  # as reported to the operator


@given(st.text(alphabet='{}[]",: \\\n0') | st.text())
def test_any_line_is_searched_without_error(text: str) -> None:
    for line in (f"{text}vectorforge.query_log{text}", text + LINE, LINE + text, f'""type"":""{LINE}{text}'):
        list(find_records(line))
