"""A batch before it reaches the database."""

from vectorforge.serverless.query_log_batch import QueryLogBatch, is_poison
from vectorforge.testing.query_logs import make_log, message


def test_what_does_not_fit_into_a_statement_comes_again() -> None:  # C01
    bodies = [message("tenant", make_log(generated_response="a" * 400)) for _ in range(5)]
    batch = QueryLogBatch(max_characters=800)
    batch.read([{"messageId": str(number), "body": body} for number, body in enumerate(bodies)], None)
    assert list(batch.records) == ["0", "1"]
    assert list(batch.failures) == ["2", "3", "4"]
    assert not any(map(is_poison, batch.failures.values()))


def test_without_a_bucket_a_pointer_is_not_the_messages_fault() -> None:  # C01
    body = """{"type": "vectorforge.query_log_pointer", "version": 1, "tenant_id": "t", "key": "k",
        "id": "3f8b2c1d-6e5f-4a0b-9c8d-7e6f5a4b3c21"}"""
    batch = QueryLogBatch()
    batch.read([{"messageId": "0", "body": body}], None)
    assert "VECTORFORGE_QUERY_LOG_OVERFLOW_BUCKET" in batch.failures["0"].message
    assert not is_poison(batch.failures["0"])
