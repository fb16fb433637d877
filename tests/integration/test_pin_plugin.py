"""The tests' traffic passes the pin detector, and a test that pins fails: C34."""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from psycopg.conninfo import make_conninfo

from infra.emulator.lambda_service.function_process import FunctionProcess
from tests.support.aws.live_query_function import query_surroundings
from tests.support.aws.query_events import load_event, query_function, response_of
from tests.support.http.live_api import key_of
from tests.support.postgres.pin_detector import PinDetector
from tests.support.rag.query_logs import make_log
from vectorforge.db.connection import Database
from vectorforge.db.repositories.query_log_repo import QueryLogWriter
from vectorforge.local.postgres import EmbeddedPostgres

ROOT = Path(__file__).parents[2]
VECTORFORGE = Path(sys.executable).with_name("vectorforge")
Seen: TypeAlias = Callable[[], Counter[str]]


@pytest.fixture
def seen(pin_detector: PinDetector) -> Seen:
    """Return the detector's counts since the test began: messages by kind, connections by role."""

    def judged() -> Counter[str]:
        return pin_detector.messages + pin_detector.connections

    before = judged()
    return lambda: judged() - before


class TestObservedStatements:
    async def test_library_statements_are_seen_directly_and_through_pgbouncer(
        self, seen: Seen, each_app_url: str, make_tenant: Callable[[], str]
    ) -> None:
        async with Database(each_app_url, pool_size=1) as database:
            tenant = database.for_tenant(make_tenant())
            opened = seen()
            assert opened["vectorforge_app"] >= 1
            assert (await database.health()).healthy
            assert (seen() - opened)["Query"] >= 1
            counts_before = seen()
            for _ in range(8):  # the driver's default is to prepare the sixth execution
                await tenant.fetch_one("SELECT %s::int", (1,))
            assert (seen() - counts_before)["Parse"] == 8 * 2  # the tenant, the query
            assert (seen() - counts_before)["Bind"] == 8 * 2

    async def test_statements_on_test_databases_are_seen(
        self, seen: Seen, make_database: Callable[..., str]
    ) -> None:
        async with Database(make_conninfo(make_database(), user="vectorforge_app"), pool_size=1):
            assert seen()["vectorforge_app"] == 1

    async def test_log_writer_statements_are_seen(
        self, seen: Seen, postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
    ) -> None:
        async with Database(postgres_server.log_writer_url, pool_size=1) as database:
            opened = seen()
            await QueryLogWriter(database).write([(make_tenant(), make_log())])
        assert (seen() - opened)["vectorforge_log_writer"] == 1
        assert (seen() - opened)["Parse"] >= 1

    async def test_function_process_statements_are_seen(
        self, seen: Seen, postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
    ) -> None:
        async with query_surroundings(postgres_server.app_url, make_tenant()) as surroundings:
            filled = seen()
            event = load_event("query_http_api_query", x_api_key=key_of(surroundings.tenant))
            async with FunctionProcess(query_function(surroundings, "buffered")) as function:
                assert (await response_of(await function.invoke(event)))[0] == 200
        assert (seen() - filled)["vectorforge_app"] >= 1
        assert (seen() - filled)["Parse"] >= 4

    def test_command_statements_are_seen(
        self, seen: Seen, postgres_server: EmbeddedPostgres, tmp_path: Path
    ) -> None:
        done = subprocess.run(
            [VECTORFORGE, "collections", "list", "--json"],
            env={**os.environ, "VECTORFORGE_DATABASE_URL": postgres_server.app_url},
            cwd=tmp_path, capture_output=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert seen()["vectorforge_app"] >= 1
        assert seen()["Parse"] >= 1

    async def test_migrator_statements_are_ignored(
        self, seen: Seen, make_database: Callable[..., str]
    ) -> None:
        make_database()  # migrated, from a template, by the superuser
        assert seen() == {}


INNER_TESTS = """
import subprocess
import sys

import pytest

from tests.support.postgres.pin_rules import PinRule


async def run(database, statement):
    async with database.connection() as connection:
        await connection.execute(statement)


async def test_harmless(database):
    await run(database, "SELECT 'SET work_mem'")


@pytest.fixture
def database_url(each_app_url):
    return each_app_url


async def test_set(database):
    await run(database, "/* why not */ SET work_mem = '1MB'")


def test_process(postgres_server):
    code = "import psycopg, sys; psycopg.connect(sys.argv[1], autocommit=True).execute('RESET ALL')"
    subprocess.run([sys.executable, "-c", code, postgres_server.app_url], check=True)


async def test_after_them(direct_database):
    await run(direct_database, "SELECT 1")


@pytest.fixture
async def careless(direct_database):
    yield
    await run(direct_database, "SELECT pg_advisory_lock(1)")


def test_fixture(careless):
    pass


@pytest.mark.pins(PinRule.SETTING)
async def test_on_purpose(direct_database):
    await run(direct_database, "SET work_mem = '1MB'")


@pytest.mark.pins(PinRule.SETTING)
async def test_other_purpose(direct_database):
    await run(direct_database, "LISTEN news")


@pytest.mark.pins(PinRule.SETTING)
def test_skipped():
    pytest.skip("before it could")
"""
INNER_ERRORS = {
    "test_set[direct]": "SET or RESET: /* why not */ SET work_mem = '1MB' (as vectorforge_app",
    "test_set[pgbouncer]": "SET or RESET: /* why not */ SET work_mem = '1MB' (as vectorforge_app",
    "test_process": "SET or RESET: RESET ALL (as vectorforge_app",
    "test_fixture": "an advisory lock of the session: SELECT pg_advisory_lock(1) (as vectorforge_app",
    "test_other_purpose": "LISTEN or UNLISTEN: LISTEN news (as vectorforge_app",
}


@pytest.mark.pgbouncer
def test_pinning_test_fails_with_the_reason(pgbouncer: object, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *")
    (tmp_path / "test_inner.py").write_text(INNER_TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", f"--rootdir={tmp_path}", "-rA",
         "-p", "no:cacheprovider", tmp_path / "test_inner.py"],
        # Without CI, with which pytest repeats whole messages in its summary.
        env={
            **{name: value for name, value in os.environ.items() if name != "CI"},
            "PYTHONPATH": f"{ROOT}:{ROOT / 'shared'}",
        },
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert set(re.findall(r"^ERROR test_inner.py::(\S+)", done.stdout, re.MULTILINE)) == set(INNER_ERRORS)
    for name, message in INNER_ERRORS.items():
        report = re.split(
            r"^[_=]{3,} ", done.stdout.split(f"ERROR at teardown of {name} ")[1], flags=re.MULTILINE
        )[0]
        assert message in report
        assert f"test_inner.py::{name} (" in report
    assert done.stdout.count("is marked to break the rule of SET or RESET, and did not") == 1
    assert re.search(
        r"^pin detector: [1-9]\d* statements, \d+ connections, 5 pins \(1 on purpose\)",
        done.stdout,
        re.MULTILINE,
    )
    assert re.search(r"9 passed, 1 skipped, 5 errors", done.stdout)
