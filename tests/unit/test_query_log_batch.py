"""A batch before it reaches the database, and the classification of failures."""

import pytest

from tests.support.rag.query_logs import make_log, message
from vectorforge.aws.handlers.query_log_writer import RETRY_WAITS, QueryLogBatch, is_poison
from vectorforge.aws.queues import RetryWaits
from vectorforge.errors import (
    ConfigurationError,
    DatabaseError,
    DatabaseUnavailableError,
    DeadlineExceededError,
    InvalidInputError,
    NotFoundError,
    ObjectStoreError,
    RefusedRowError,
    VectorForgeError,
)


def test_unstored_messages_fail_and_poison_ones_retain_reason() -> None:  # C01
    bodies = [message("tenant", make_log()), "poison", message("tenant", make_log())]
    batch = QueryLogBatch()
    batch.read([{"messageId": str(number), "body": body} for number, body in enumerate(bodies)])
    assert set(batch.query_ids) == {"0", "2"}
    batch.fail_rest(DeadlineExceededError())
    assert {name: type(error) for name, error in batch.failures.items()} == {
        "0": DeadlineExceededError,
        "1": InvalidInputError,
        "2": DeadlineExceededError,
    }


@pytest.mark.parametrize(
    ("error", "poison"),
    [
        (InvalidInputError(), True),
        (RefusedRowError(), True),
        (DatabaseError(), False),
        (DatabaseUnavailableError(), False),
        (NotFoundError(), False),
        (ObjectStoreError(), False),
        (ConfigurationError(), False),
        (DeadlineExceededError(), False),
    ],
)
def test_database_error_is_poison_only_for_invalid_values(error: VectorForgeError, poison: bool) -> None:
    assert is_poison(error) is poison  # C01; fault 39


def test_five_deliveries_span_more_than_two_hours() -> None:  # C01; documented in docs/operate/query-log.md
    waits = [RETRY_WAITS.after(count) for count in range(1, 5)]
    assert waits == [30, 180, 1080, 6480]
    assert sum(waits) > 2 * 3600
    assert RETRY_WAITS.after(1000) == 3 * 3600
    assert [RetryWaits().after(count) for count in range(1, 6)] == [30, 120, 480, 1920, 3600]
