"""The migrate function answers CloudFormation exactly once, in every case."""

import asyncio
import shutil
import socket
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.functions.migrate_process import ROOT, SIGNED, Stack, event, fail_in_process, invoke, url_of
from vectorforge.aws.handlers.migrate import StackAnswer, StackRequest
from vectorforge.db.schema.migrate import _LOCK_KEY, pending, read_migrations
from vectorforge.deadline import Deadline
from vectorforge.errors import VectorForgeError


async def test_stack_request_migrates_new_database_once(
    make_database: Callable[..., str], stack: Stack
) -> None:
    empty = make_database(empty=True)
    environment = {
        "VECTORFORGE_MIGRATOR_DATABASE_URL": url_of(empty),
        "VECTORFORGE_DATABASE_URL": url_of(empty, "canary-password", user="vectorforge_app"),
    }
    names = [migration.name for migration in read_migrations()]
    answers, printed = await invoke(
        environment,
        (event("migrate_invoke_check"), 60_000),
        (stack.request("migrate_cloudformation_create"), 60_000),
        (stack.request("migrate_cloudformation_update"), 60_000),
        (stack.request("migrate_cloudformation_delete"), 60_000),
        (event("migrate_invoke_check"), 60_000),
        ({"action": "migrate"}, 60_000),
    )
    assert answers == [{"pending": names}, None, None, None, {"pending": []}, {"applied": []}]
    assert [answer["Status"] for answer in stack.answers] == ["SUCCESS"] * 3
    assert {answer["PhysicalResourceId"] for answer in stack.answers} == {"vectorforge-schema"}
    assert stack.content_types == [""] * 3
    create = event("migrate_cloudformation_create")
    for name in ("StackId", "RequestId", "LogicalResourceId"):
        assert stack.answers[0][name] == create[name]
    assert stack.answers[0]["Data"] == {"Version": str(len(names)), "Applied": str(len(names))}
    assert stack.answers[1]["Data"]["Applied"] == "0"
    assert await pending(empty) == []
    with psycopg.connect(empty) as connection:
        verifier = connection.execute(
            "SELECT rolpassword FROM pg_authid WHERE rolname = 'vectorforge_app'"
        ).fetchone()
        connection.execute("ALTER ROLE vectorforge_app PASSWORD NULL")
    assert verifier is not None
    assert verifier[0].startswith("SCRAM-SHA-256$")
    assert "canary" not in printed + str(stack.answers)


async def test_index_action_builds_missing_indexes(make_database: Callable[..., str]) -> None:
    conninfo = make_database()
    with psycopg.connect(conninfo) as connection:
        connection.execute(
            "INSERT INTO vectorforge.collections (tenant_id, id, name, embedding_provider, embedding_model,"
            " dimension, distance_metric, chunk_count)"
            " VALUES ('a', gen_random_uuid(), 'n', 'p', 'm', 384, 'cosine', 10001),"
            " ('a', gen_random_uuid(), 'o', 'p', 'm', 1536, 'cosine', 2500)"
        )
    environment = {"VECTORFORGE_MIGRATOR_DATABASE_URL": url_of(conninfo)}
    answers, _ = await invoke(environment, ({"action": "index"}, 60_000), ({"action": "index"}, 60_000))
    assert answers == [{"built": ["cosine_384"]}, {"built": []}]


async def test_rolled_back_stack_retains_newer_schema(
    make_database: Callable[..., str], stack: Stack, tmp_path: Path
) -> None:
    older = tmp_path / "vectorforge"  # the code before the last migration
    shutil.copytree(ROOT / "shared" / "vectorforge", older, ignore=shutil.ignore_patterns("__pycache__"))
    last = read_migrations()[-1].name
    (older / "db" / "migrations" / last).unlink()
    environment = {"VECTORFORGE_MIGRATOR_DATABASE_URL": url_of(make_database(empty=True))}
    update = stack.request("migrate_cloudformation_update")
    await invoke(environment, (stack.request("migrate_cloudformation_create"), 60_000))
    await invoke(environment, (update, 60_000), library=tmp_path)
    assert [answer["Status"] for answer in stack.answers] == ["SUCCESS"] * 2
    assert stack.answers[1]["Data"]["Applied"] == "0"

    answers, _ = await invoke(environment, ({"action": "migrate"}, 60_000), library=tmp_path)
    assert answers == [  # a direct call reports it
        {
            "error": "MigrationError",
            "message": f"The database has migration {last}, which this version does not include.",
        }
    ]
    with (older / "db" / "migrations" / "0002_tenants.sql").open("a") as file:
        file.write("-- changed")
    await invoke(environment, (update, 60_000), library=tmp_path)
    assert stack.answers[2]["Status"] == "FAILED"
    assert "0002_tenants.sql was changed" in stack.answers[2]["Reason"]


async def test_failure_response_contains_no_secrets(stack: Stack, capfd: pytest.CaptureFixture[str]) -> None:
    unreachable = "postgresql://admin:canary-password@127.0.0.1:1/x"
    for environment, reason in (
        ({"VECTORFORGE_MIGRATOR_DATABASE_URL": unreachable}, "cannot be reached"),
        ({}, "VECTORFORGE_MIGRATOR_DATABASE_URL"),
        ({"VECTORFORGE_DATABASE_POOL_SIZE": "canary"}, "VECTORFORGE_DATABASE_POOL_SIZE"),
        ({"VECTORFORGE_MIGRATOR_DATABASE_URL": "canary"}, ""),
    ):
        found, printed = await fail_in_process(environment, stack, capfd)
        assert reason in found
        assert "canary" not in printed


async def test_unknown_request_fails_and_delete_needs_no_database(stack: Stack) -> None:
    unknown = {**stack.request("migrate_cloudformation_create"), "RequestType": "Replace"}
    named = {**stack.request("migrate_cloudformation_delete"), "PhysicalResourceId": "an-older-name"}
    await invoke({}, (unknown, 30_000), (named, 30_000))
    assert [answer["Status"] for answer in stack.answers] == ["FAILED", "SUCCESS"]
    assert [answer["PhysicalResourceId"] for answer in stack.answers] == [
        "vectorforge-schema",
        "an-older-name",
    ]


async def test_timeout_is_answered_before_the_function_is_killed(
    make_database: Callable[..., str], stack: Stack
) -> None:
    empty = make_database(empty=True)
    with psycopg.connect(empty) as other:  # another migrator that never finishes
        other.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK_KEY])
        environment = {"VECTORFORGE_MIGRATOR_DATABASE_URL": url_of(empty)}
        await invoke(environment, (stack.request("migrate_cloudformation_create"), 4_000))
    [answer] = stack.answers
    assert answer["Status"] == "FAILED"
    assert "still migrating after" in answer["Reason"] or "timed out after" in answer["Reason"]
    assert len(await pending(empty)) == len(read_migrations())


async def test_unresponsive_database_fails_stack_request_in_time(stack: Stack) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections without answering
        environment = {
            "VECTORFORGE_MIGRATOR_DATABASE_URL": f"postgresql://admin@127.0.0.1:{silent.getsockname()[1]}/x"
        }
        async with asyncio.timeout(15):
            await invoke(environment, (stack.request("migrate_cloudformation_create"), 4_000))
    [answer] = stack.answers
    assert answer["Status"] == "FAILED"


async def test_rejected_answer_is_retried(stack: Stack) -> None:
    stack.refuses = 2
    answers, printed = await invoke({}, (stack.request("migrate_cloudformation_delete"), 30_000))
    assert answers == [None]
    assert len(stack.answers) == 1
    stack.refuses = 3
    answers, refused = await invoke({}, (stack.request("migrate_cloudformation_delete"), 30_000))
    assert answers == [{"error": "VectorForgeError", "message": "CloudFormation did not accept the answer."}]
    assert "canary" not in printed + refused


def send_in_process(stack: Stack, reason: str, *, url: str | None = None) -> None:
    request = StackRequest.of(stack.request("migrate_cloudformation_create"))
    if url is not None:
        request = replace(request, response_url=url)
    StackAnswer("vectorforge-schema", {}, failure=reason).send(request, Deadline.after(30))


@pytest.mark.parametrize("character", ["x", "ü", "\N{GRINNING FACE}", "\n", "\ud800"])
def test_answer_is_truncated_to_4096_bytes(stack: Stack, character: str) -> None:
    send_in_process(stack, character * 5000)
    assert (
        stack.sizes[0] <= 4096
    )  # docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/crpg-ref-responses.html
    assert stack.sizes[0] > 4080
    assert set(stack.answers[0]["Reason"]) == {character}


def test_answer_without_http_response_is_retried(stack: Stack) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        attempts = []

        def answer_rubbish() -> None:
            for _ in range(3):
                connection, _ = server.accept()
                with connection:
                    attempts.append(connection.recv(65536))
                    connection.sendall(b"rubbish\r\n\r\n")

        thread = threading.Thread(target=answer_rubbish, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/answer?X-Amz-Signature=canary"
        with pytest.raises(VectorForgeError, match=r"^CloudFormation did not accept the answer\.$"):
            send_in_process(stack, "reason", url=url)
        thread.join(30)
    assert len(attempts) == 3


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:1/answer here", "http://[broken", "http://127.0.0.1:port"]
)
def test_unusable_response_url_is_not_disclosed(
    stack: Stack, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(VectorForgeError) as caught:
        send_in_process(stack, "reason", url=address + SIGNED)
    report = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert "did not accept the answer" in report
    assert "canary" not in report


async def test_direct_call_with_unknown_action_returns_error(make_database: Callable[..., str]) -> None:
    environment = {"VECTORFORGE_MIGRATOR_DATABASE_URL": make_conninfo(make_database())}
    answers, _ = await invoke(environment, ({"action": "drop"}, 30_000), ({}, 30_000))
    message = "action must be one of: migrate, check, index, status, start, ended, restored."
    expected = {"error": "InvalidInputError", "message": message}
    assert answers == [expected, expected]
