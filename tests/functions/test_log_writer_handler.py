"""The log-writer function on real event shapes, in a separate process, as Lambda runs it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.aws.fake_aws import FakeAws

ROOT = Path(__file__).parents[2]
DRIVER = """
import json, sys
from functions.log_writer.handler import handler
from tests.support.aws.lambda_context import LambdaContext
answers = [handler(json.loads(line), LambdaContext()) for line in sys.stdin]
handler.shutdown()
print(json.dumps({"answers": answers}))
"""
FORKING_DRIVER = """
import json, os, sys, warnings
from functions.log_writer.handler import handler
from tests.support.aws.lambda_context import LambdaContext
events = [json.loads(line) for line in sys.stdin]
answers = [handler(events[0], LambdaContext())]
sys.stdout.flush()
warnings.simplefilter("ignore", DeprecationWarning)  # of fork beside threads, since Python 3.12
if os.fork() == 0:
    answers.append(handler(events[1], LambdaContext()))
    print(json.dumps({"answers": answers}), flush=True)
    os._exit(0)
_, status = os.wait()
sys.exit(status)
"""
ROWS = (
    b"SELECT tenant_id, outcome, query_text, jsonb_array_length(used_chunk_ids) FROM vectorforge.query_logs"
)


def event(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ROOT / "events" / f"log_writer_sqs_{name}.json").read_text())
    return loaded


def invoke(
    environment: dict[str, str], *events: dict[str, Any], driver: str = DRIVER
) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return the responses of one warm process, and its logs."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "shared")])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", driver],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path, "HOME": os.environ["HOME"], **environment},
        input="".join(json.dumps(event) + "\n" for event in events),
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines[-1]["answers"], lines[:-1]


@pytest.fixture
def database_url(make_database: Callable[..., str]) -> str:
    """Create a separate database; return the migrator's connection string."""
    return make_database()


def environment(database_url: str) -> dict[str, str]:
    return {
        "VECTORFORGE_LOG_WRITER_DATABASE_URL": make_conninfo(database_url, user="vectorforge_log_writer"),
        "POWERTOOLS_LOG_LEVEL": "INFO",
    }


def rows(database_url: str) -> list[Any]:
    with psycopg.connect(database_url) as connection:
        return sorted(connection.execute(ROWS).fetchall())


def test_batch_of_two_tenants_delivered_twice_is_stored_once(
    database_url: str,
) -> None:  # C01, F-003; fault 38
    answers, lines = invoke(environment(database_url), event("batch"), event("batch"))
    assert answers == [{"batchItemFailures": []}] * 2
    assert rows(database_url) == [
        ("acme", "answered", "How long does a refund take?", 1),
        ("globex", "error", "Wie lange dauert eine Rückzahlung? 🙂", 0),
    ]
    stored_lines = [line for line in lines if line.get("message") == "Query logs stored"]
    assert [(line["rows_stored"], line["rows_already_there"]) for line in stored_lines] == [(2, 0), (0, 2)]
    assert [line["cold_start"] for line in stored_lines] == [True, False]
    assert sum(sum(line.get("query_log.rows_stored", [0])) for line in lines) == 2


def test_forked_process_opens_own_connections(database_url: str) -> None:
    batches = event("batch"), event("batch")
    answers, lines = invoke(environment(database_url), *batches, driver=FORKING_DRIVER)
    assert answers == [{"batchItemFailures": []}] * 2
    stored_lines = [line for line in lines if line.get("message") == "Query logs stored"]
    assert [(line["rows_stored"], line["rows_already_there"]) for line in stored_lines] == [(2, 0), (0, 2)]


def test_poison_record_fails_without_others(database_url: str) -> None:  # C01; fault 39
    poison = event("poison")
    answers, lines = invoke(environment(database_url), poison)
    bad = [record["messageId"] for record in poison["Records"][1:]]
    assert answers == [{"batchItemFailures": [{"itemIdentifier": message_id} for message_id in bad]}]
    assert [row[:2] for row in rows(database_url)] == [("acme", "answered")]
    refused = [line for line in lines if line.get("message") == "A query log message was refused"]
    assert [(line["message_id"], line["receive_count"]) for line in refused] == [(bad[0], "3"), (bad[1], "5")]
    assert refused[1]["reason"] == "The query log is not usable: outcome: literal_error."
    assert "refund" not in json.dumps(lines)  # reasons, no texts


def test_overflow_record_is_read_from_bucket(database_url: str) -> None:  # C01
    overflow, record = event("overflow"), event("batch")["Records"][0]["body"]
    with FakeAws() as aws:
        bucket = aws.create_bucket()
        key = json.loads(overflow["Records"][0]["body"])["key"]
        variables = {
            **environment(database_url),
            **aws.environment,
            "VECTORFORGE_QUERY_LOG_OVERFLOW_BUCKET": bucket,
        }
        missing, _ = invoke(variables, overflow)
        aws.client("s3").put_object(Bucket=bucket, Key=key, Body=record.encode())
        found, _ = invoke(variables, overflow)
    assert missing == [{"batchItemFailures": [{"itemIdentifier": overflow["Records"][0]["messageId"]}]}]
    assert found == [{"batchItemFailures": []}]
    assert [row[:2] for row in rows(database_url)] == [("acme", "answered")]


def test_missing_database_url_error_names_setting() -> None:
    code = "from functions.log_writer.handler import handler; handler.startup()"
    path = os.pathsep.join([str(ROOT), str(ROOT / "shared")])
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "ConfigurationError: Set VECTORFORGE_LOG_WRITER_DATABASE_URL" in done.stderr
