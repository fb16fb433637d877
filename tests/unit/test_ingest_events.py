"""Events of the state machine of bulk loads."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vectorforge.aws.handlers.ingest_events import ListedObjects
from vectorforge.errors import InvalidInputError

EVENT = Path(__file__).parents[2] / "events" / "ingest_step_functions_batch.json"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"bucket": None}, "bucket"),
        ({"bucket": ""}, "bucket"),
        ({"bucket": "a\0b"}, "bucket"),
        ({"bucket": "a/b"}, "bucket"),
        ({"Items": None}, "Items"),
        ({"Items": {"Key": "a"}}, "Items"),
        ({"Items": ["acme/docs/a.txt"]}, "Items"),
        ({"Items": [{"key": "acme/docs/a.txt"}]}, "Items"),
        ({"Items": [{"Key": ""}]}, "Items"),
        ({"started_at": "yesterday"}, "started_at"),
        ({"started_at": "2026-11-22T06:00:00"}, "started_at"),
        ({"started_at": 7}, "started_at"),
    ],
)
def test_malformed_batch_event_is_rejected_with_field(change: dict[str, Any], field: str) -> None:
    batch = json.loads(EVENT.read_text())
    with pytest.raises(InvalidInputError) as caught:
        ListedObjects.of({**batch, **change})
    assert caught.value.field == field


def test_recorded_batch_event_is_parsed() -> None:
    event = json.loads(EVENT.read_text())
    batch = ListedObjects.of(event)
    assert (batch.bucket, batch.keys) == (
        "vectorforge-uploads",
        ("acme/handbook/policies/Refunds & returns (2026).md",),
    )
    assert batch.started_at == datetime(2026, 11, 21, 23, 10, 0, 123_000, tzinfo=UTC)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["Key", "Items", "bucket"]), inner),
    max_leaves=6,
)


@given(bucket=_JSON, items=_JSON, started_at=_JSON)
def test_any_batch_event_is_parsed_or_rejected(bucket: Any, items: Any, started_at: Any) -> None:
    try:
        batch = ListedObjects.of({"bucket": bucket, "Items": items, "started_at": started_at})
    except InvalidInputError:
        return
    assert batch.bucket
    assert all(batch.keys)
