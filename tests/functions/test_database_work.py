"""Long work of the migrate function continues on hosts, which it starts, watches and replaces."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from infra.stage_settings import HOST_TASK_TAG
from tests.functions.migrate_process import ROOT, Stack, invoke, url_of
from tests.support.aws.fake_aws import FakeAws
from tests.support.aws.scripted_aws import ScriptedAws
from vectorforge.aws.handlers.database_work import TASK_TAG
from vectorforge.db.schema.migrate import _LOCK_KEY, pending, read_migrations
from vectorforge.db.schema.vector_indexes import IndexState, list_indexes

LARGE = 10_001


@pytest.fixture
def account() -> Iterator[ScriptedAws]:
    with ScriptedAws() as server:
        yield server


@pytest.fixture
def template(account: ScriptedAws) -> str:
    ec2 = account.client("ec2")
    named = [{"Name": "name", "Values": ["al2023-ami-2023*"]}]  # a list of all 1,300 takes a second
    image = ec2.describe_images(Owners=["amazon"], Filters=named)["Images"][0]["ImageId"]
    made = ec2.create_launch_template(
        LaunchTemplateName="vectorforge-dev-operator",
        LaunchTemplateData={"InstanceType": "t4g.small", "ImageId": image},
    )
    return str(made["LaunchTemplate"]["LaunchTemplateId"])


Environment = Callable[[str], dict[str, str]]


@pytest.fixture
def environment(account: ScriptedAws, template: str) -> Environment:
    def of(conninfo: str) -> dict[str, str]:
        return {
            **account.environment,
            "VECTORFORGE_MIGRATOR_DATABASE_URL": url_of(conninfo),
            "VECTORFORGE_OPERATOR_TEMPLATE": template,
        }

    return of


def hosts(account: FakeAws, *states: str) -> list[dict[str, Any]]:
    filters = [{"Name": "instance-state-name", "Values": list(states or ("pending", "running"))}]
    found = account.client("ec2").describe_instances(Filters=filters)["Reservations"]
    return [instance for group in found for instance in group["Instances"]]


def tags(instance: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in instance["Tags"]}


def add_collection(conninfo: str, vectors: int) -> None:
    with psycopg.connect(conninfo) as connection:
        connection.execute(
            "INSERT INTO vectorforge.collections (tenant_id, id, name, embedding_provider, embedding_model,"
            " dimension, distance_metric, chunk_count)"
            " VALUES ('a', gen_random_uuid(), 'n', 'p', 'm', 384, 'cosine', %s)",
            [vectors],
        )


async def test_long_index_build_starts_one_host_and_watches_it(
    make_database: Callable[..., str], environment: Environment, account: ScriptedAws
) -> None:
    conninfo = make_database()
    add_collection(conninfo, 2_000_000)  # some 27 minutes on two cores
    look = ({"action": "index"}, 60_000)
    [first, second], _ = await invoke(environment(conninfo), look, look)
    [host] = hosts(account)
    assert tags(host)[TASK_TAG] == "index"
    assert first is not None
    assert second is not None
    assert first["built"] == second["built"] == []
    assert [shown["id"] for shown in (*first["hosts"], *second["hosts"])] == [host["InstanceId"]] * 2
    assert second["building"] == []


async def test_lost_host_is_replaced_by_the_next_look(
    make_database: Callable[..., str], environment: Environment, account: ScriptedAws
) -> None:
    conninfo = make_database()
    add_collection(conninfo, 2_000_000)
    await invoke(environment(conninfo), ({"action": "index"}, 60_000))
    [lost] = hosts(account)
    account.client("ec2").terminate_instances(InstanceIds=[lost["InstanceId"]])
    await invoke(environment(conninfo), ({"action": "index"}, 60_000))
    [other] = hosts(account)
    assert other["InstanceId"] != lost["InstanceId"]


async def test_short_index_build_needs_no_host(
    make_database: Callable[..., str], environment: Environment, account: ScriptedAws
) -> None:
    conninfo = make_database()
    add_collection(conninfo, LARGE)
    answers, _ = await invoke(environment(conninfo), ({"action": "index"}, 60_000))
    assert answers == [{"built": ["cosine_384"]}]
    assert hosts(account) == []


async def test_build_by_another_process_is_shown_with_progress(
    make_database: Callable[..., str], environment: Environment, account: ScriptedAws, tmp_path: Path
) -> None:
    conninfo = make_database()
    add_collection(conninfo, LARGE)
    with psycopg.connect(conninfo) as writer:
        writer.execute("LOCK TABLE vectorforge.embeddings_cosine_384 IN ROW EXCLUSIVE MODE")
        with host_process(conninfo, tmp_path) as building:
            wait_for_build(conninfo)
            [looked, status], _ = await invoke(
                environment(conninfo), ({"action": "index"}, 60_000), ({"action": "status"}, 60_000)
            )
            writer.commit()
            assert building.wait(60) == 0
    assert looked is not None
    assert looked["built"] == []
    [progress] = looked["building"]
    assert progress["space"] == "cosine_384"
    assert progress["phase"].startswith("waiting for writers")
    assert status == {"pending": [], "building": looked["building"], "hosts": []}
    assert hosts(account) == []


@pytest.mark.slow
async def test_long_migration_of_stack_continues_on_host(
    make_database: Callable[..., str], environment: Environment, account: ScriptedAws, stack: Stack
) -> None:
    empty = make_database(empty=True)
    with psycopg.connect(empty) as other:
        # Blocks the first file in the middle, as a long one would take time.
        other.execute("CREATE SCHEMA vectorforge")
        await invoke(environment(empty), (stack.request("migrate_cloudformation_create"), 28_000))
    [host] = hosts(account)
    assert tags(host)[TASK_TAG] == "migrate"
    [answer] = stack.answers
    assert answer["Status"] == "FAILED"
    assert f"continues on the host {host['InstanceId']}" in answer["Reason"]
    assert len(await pending(empty)) == len(read_migrations())


async def test_rolled_back_stack_does_not_wait_for_migrating_host(
    make_database: Callable[..., str], environment: Environment, stack: Stack
) -> None:
    conninfo = make_database()
    with psycopg.connect(conninfo) as migrating:
        migrating.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK_KEY])  # as the host does
        await invoke(
            environment(conninfo),
            ({"action": "start", "task": "migrate"}, 60_000),
            (stack.request("migrate_cloudformation_update"), 20_000),
        )
    [answer] = stack.answers
    assert (answer["Status"], answer["Data"]["Applied"]) == ("SUCCESS", "0")


async def test_end_of_task_is_logged_and_failure_is_an_error(
    make_database: Callable[..., str], environment: Environment
) -> None:
    ended = {"action": "ended", "task": "index", "output": "x" * 5_000 + "the end"}
    answers, printed = await invoke(
        environment(make_database()),
        ({**ended, "exit_code": 0}, 30_000),
        ({**ended, "exit_code": 4}, 30_000),
        ({**ended, "task": "drop", "exit_code": 0}, 30_000),
    )
    failed = "The task index failed on a host (exit code 4); see the log."
    assert answers == [
        {"ended": "index"},
        {"error": "VectorForgeError", "message": failed},
        {"error": "InvalidInputError", "message": "task must be one of: index, migrate."},
    ]
    assert "the end" in printed
    assert "x" * 4_001 not in printed


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [("UnauthorizedOperation", 403, "ConfigurationError"), ("InternalError", 500, "VectorForgeError")],
)
async def test_rejection_by_ec2_is_reported_without_its_text(
    make_database: Callable[..., str],
    environment: Environment,
    account: ScriptedAws,
    code: str,
    status: int,
    error: str,
) -> None:
    account.fail("ec2", "RunInstances", code, status=status)
    answers, printed = await invoke(
        environment(make_database()), ({"action": "start", "task": "index"}, 30_000)
    )
    assert answers == [{"error": error, "message": f"EC2 rejected run_instances ({code})."}]
    assert "CANARY" not in printed


async def test_stage_without_hosts_cannot_start_one(make_database: Callable[..., str]) -> None:
    environment = {"VECTORFORGE_MIGRATOR_DATABASE_URL": url_of(make_database())}
    answers, _ = await invoke(environment, ({"action": "start", "task": "index"}, 30_000))
    assert answers[0] is not None
    assert answers[0]["error"] == "ConfigurationError"


def test_tag_is_the_one_of_the_template() -> None:
    assert TASK_TAG == HOST_TASK_TAG


def host_process(conninfo: str, folder: Path) -> subprocess.Popen[bytes]:
    """Run a host's script for the task "index"; ``aws`` and ``shutdown`` record their arguments."""
    scripts = {
        "aws": f'printf "%s\\n" "$*" >>{folder}/calls',
        "shutdown": f'echo "shutdown $*" >>{folder}/calls',
        "vectorforge": f'exec {sys.executable} -m vectorforge.cli "$@"',
        "python3": f'exec {sys.executable} "$@"',
    }
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/bash\n{script}\n")
        (folder / name).chmod(0o755)
    environment = {
        "PATH": f"{folder}:/usr/bin:/bin",
        "HOME": os.environ["HOME"],
        "PYTHONPATH": str(ROOT / "shared"),
        "PYTHON_VERSION": "3",
        "MIGRATE_FUNCTION": "vectorforge-dev-migrate:live",
        "RETRY_S": "0",
        "VECTORFORGE_DATABASE_URL": url_of(conninfo, user="vectorforge_app"),
        "VECTORFORGE_MIGRATOR_DATABASE_URL": url_of(conninfo),
    }
    command = ["bash", str(ROOT / "infra" / "bundling" / "host" / "task"), "index"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)


async def test_killed_host_leaves_a_build_that_the_next_one_completes(
    make_database: Callable[..., str], tmp_path: Path
) -> None:
    conninfo = make_database()
    add_collection(conninfo, LARGE)
    with psycopg.connect(conninfo) as writer:
        writer.execute("LOCK TABLE vectorforge.embeddings_cosine_384 IN ROW EXCLUSIVE MODE")
        lost = host_process(conninfo, tmp_path)
        backend = wait_for_build(conninfo)
        os.killpg(lost.pid, signal.SIGKILL)  # the host, with everything on it
        lost.wait(30)
        # RDS notices when the connection is gone; here the test ends its backend.
        writer.execute("SELECT pg_terminate_backend(%s, 30000)", [backend])
    [space] = [index for index in await list_indexes(conninfo) if index.space == "cosine_384"]
    assert [own.state for own in space.own] == [IndexState.INVALID]
    assert not (tmp_path / "calls").exists()
    with host_process(conninfo, tmp_path) as other:
        assert other.wait(90) == 0
    [space] = [index for index in await list_indexes(conninfo) if index.space == "cosine_384"]
    assert [own.state for own in space.own] == [IndexState.READY]
    invoked, shutdown = (tmp_path / "calls").read_text().splitlines()
    assert "lambda invoke --function-name vectorforge-dev-migrate:live" in invoked
    assert '"task": "index", "exit_code": 0' in invoked
    assert shutdown == "shutdown --poweroff now"


def test_failing_task_is_tried_three_times_and_reported(
    make_database: Callable[..., str], tmp_path: Path
) -> None:
    with host_process("user=postgres dbname=none host=127.0.0.1 port=1", tmp_path) as host:
        assert host.wait(90) != 0
    invoked, shutdown = (tmp_path / "calls").read_text().splitlines()
    assert '"exit_code": 0' not in invoked
    assert '"output": "error: ' in invoked
    assert shutdown == "shutdown --poweroff now"


def wait_for_build(conninfo: str) -> int:
    """Return the backend that builds an index."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for _ in range(300):
            row = connection.execute(
                "SELECT pid FROM pg_stat_progress_create_index WHERE datname = current_database()"
                " AND phase LIKE 'waiting for writers%' AND pg_sleep(0.05) IS NOT NULL"
            ).fetchone()
            if row:
                return int(row[0])
            connection.execute("SELECT pg_sleep(0.1)")
    raise AssertionError("no build began")
