"""The migrate function reads restored databases."""

from collections.abc import Callable

import psycopg
import pytest

from tests.functions.migrate_process import invoke, url_of
from vectorforge.aws.handlers.database_work import restored_url
from vectorforge.db.schema.migrate import Migration, read_migrations
from vectorforge.errors import InvalidInputError

RESTORED = "arn:aws:rds:eu-central-1:123456789012:db:awsbackup-restore-test-1a2b"


async def test_restored_database_shows_schema_and_rows(make_database: Callable[..., str]) -> None:
    conninfo = make_database()
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO vectorforge.collections (tenant_id, id, name, embedding_provider, embedding_model,"
            " dimension, distance_metric, chunk_count)"
            " VALUES ('a', gen_random_uuid(), 'n', 'p', 'm', 384, 'cosine', 1)"
        )
        connection.execute("ANALYZE vectorforge.collections")
        connection.execute("DELETE FROM vectorforge.schema_migrations WHERE version = %s", [last().version])
    environment = {"VECTORFORGE_MIGRATOR_DATABASE_URL": url_of(conninfo)}
    [found], _ = await invoke(environment, ({"action": "restored", "instance": RESTORED}, 60_000))
    assert found is not None
    assert found["pending"] == [last().name]
    assert found["rows"]["collections"] == 1
    assert "chunks" in found["rows"]


async def test_restored_database_without_schema_fails(make_database: Callable[..., str]) -> None:
    environment = {"VECTORFORGE_MIGRATOR_DATABASE_URL": url_of(make_database(empty=True))}
    answers, _ = await invoke(
        environment,
        ({"action": "restored", "instance": RESTORED}, 60_000),
        ({"action": "restored", "instance": RESTORED.replace(":db:", ":subgrp:")}, 60_000),
    )
    empty, malformed = answers
    assert empty is not None
    assert malformed is not None
    assert empty["message"] == "The restored database has no schema of VectorForge."
    assert malformed["error"] == "InvalidInputError"


def test_restored_url_names_other_instance_of_the_account() -> None:
    url = (
        "postgresql://vectorforge-dev.c1.eu-central-1.rds.amazonaws.com:5432/vectorforge?sslmode=verify-full"
    )
    other = url.replace("vectorforge-dev", "awsbackup-restore-test-1a2b")
    assert restored_url(url, RESTORED) == other
    cluster, of_cluster = (one.replace(".c1.", ".cluster-c1.") for one in (url, other))
    assert restored_url(cluster, RESTORED.replace(":db:", ":cluster:")) == of_cluster
    assert restored_url(url.replace("//", "//owner:a.b@"), RESTORED) == other.replace("//", "//owner:a.b@")
    for wrong in ("", "evil.example", RESTORED + "/x", RESTORED.replace("db:", "db:-")):
        with pytest.raises(InvalidInputError, match="ARN of an instance or a cluster"):
            restored_url(url, wrong)


def last() -> Migration:
    return read_migrations()[-1]
