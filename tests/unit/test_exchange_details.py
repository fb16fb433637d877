"""Details of a stored answer as JSON for PostgreSQL."""

from uuid import UUID

import pytest

from vectorforge.pipeline.exchange import ExchangeDetails
from vectorforge.pipeline.types import QueryResult


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("a\0b\0\0", "a\ufffdb\ufffd\ufffd"),
        (r"the escape \u0000", r"the escape \u0000"),
        ("\\\0", "\\\ufffd"),
        (r"\\u0000", r"\\u0000"),
    ],
)
def test_details_replace_nul_and_keep_its_escape_in_text(text: str, stored: str) -> None:
    result = QueryResult("", "", [], [], 1.0, 2.0, 3.0, None, UUID(int=1), UUID(int=2), variant=text)
    read = ExchangeDetails.from_json(ExchangeDetails(result, []).to_json())
    assert read is not None
    assert read.result.variant == stored
