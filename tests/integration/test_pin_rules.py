"""Each of RDS Proxy's pinning rules, violated and just satisfied by the real driver: C34."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.postgres.pin_detector import PinDetector
from tests.support.postgres.pin_rules import PinRule

BROKEN: dict[PinRule, list[str]] = {
    PinRule.LONG_STATEMENT: [f"SELECT '{'x' * 16_384}'", f"SELECT 1 -- {'x' * 16_384}"],
    PinRule.SETTING: [
        "SET work_mem = '1MB'",
        "set local work_mem = '1MB'",
        "SET SESSION AUTHORIZATION DEFAULT",
        "SET TIME ZONE 'UTC'",
        "SET ROLE NONE",
        "SET CONSTRAINTS ALL DEFERRED",
        "RESET ALL",
        "/* hidden /* twice */ */ SET -- here, too\n search_path TO public",
        "SELECT 1; ; SET work_mem TO DEFAULT; SELECT 2",
        "SELECT ';--', $$;--$$, $a$;$$--$a$; RESET work_mem",
    ],
    PinRule.SET_CONFIG: [
        "SELECT set_config('work_mem', '1MB', true)",
        "SELECT 1 FROM pg_catalog . set_config /* */ ('work_mem', '1MB', false)",
        """SELECT "set_config"('work_mem', '1MB', true)""",
    ],
    PinRule.PREPARED_STATEMENT: [
        "PREPARE one AS SELECT 1",
        "EXECUTE one",
        "EXPLAIN (ANALYZE, COSTS off) EXECUTE one",
        "EXPLAIN ANALYZE VERBOSE EXECUTE one",
        "CREATE UNLOGGED TABLE ones AS EXECUTE one",
        "DEALLOCATE ALL",
        "DISCARD ALL",
    ],
    PinRule.TEMPORARY: [
        "CREATE TEMP TABLE t (a int)",
        "CREATE LOCAL TEMPORARY TABLE t (a int)",
        "CREATE TEMP SEQUENCE s",
        "CREATE OR REPLACE TEMP VIEW v AS SELECT 1",
        "CREATE TABLE pg_temp.t (a int)",
        "SELECT 1 AS a INTO TEMP t",
        "SELECT 1 AS a INTO LOCAL TEMPORARY TABLE t",
        "WITH x AS (SELECT 1 AS a) SELECT a INTO pg_temp.t FROM x",
    ],
    PinRule.CURSOR: ["DECLARE c CURSOR WITH HOLD FOR SELECT 1", "EXPLAIN DECLARE c CURSOR FOR SELECT 1"],
    PinRule.NOTIFICATION: ["LISTEN news", "UNLISTEN *"],
    PinRule.LIBRARY: ["LOAD 'auto_explain'"],
    PinRule.SEQUENCE: [
        "SELECT nextval('s')",
        "SELECT pg_catalog.setval('s', 1)",
        "INSERT INTO t (a) VALUES (currval('s'))",
        "COPY (SELECT lastval()) TO '/dev/null'",
    ],
    PinRule.ADVISORY_LOCK: [
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_try_advisory_lock_shared(1, 2)",
        "SELECT pg_advisory_unlock(1)",
        "SELECT pg_advisory_unlock_all()",
    ],
    PinRule.OPAQUE: ["DO $$ BEGIN PERFORM set_config('work_mem', '1MB', false); END $$"],
}

ALLOWED = [
    "",
    "SELECT 1",
    f"SELECT '{'x' * 16_300}'",
    "SHOW work_mem",
    "SELECT current_setting('work_mem')",
    "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY; COMMIT",
    "BEGIN; SAVEPOINT a; ROLLBACK TO a; COMMIT",
    "/* SET work_mem = 1; */ SELECT 1 -- ; RESET ALL",
    "SELECT '; SET work_mem = 1; DISCARD ALL'",
    r"SELECT e'it\'s; SET work_mem = 1; --'",
    "SELECT U&'; LISTEN news', n'; LOAD x', $1$ FROM (VALUES (1)) v(a$1$)",
    "SELECT $$; SET work_mem = 1; $$, $a$ nextval('s') $$ $a$",
    """SELECT 1 AS "set", 2 AS "a; nextval(", 3 AS nextval, 4 AS "it""s; RESET ALL; --" """,
    "SELECT 'set_config(''a'', ''b'', true)', 'pg_advisory_lock(1)'",
    "SELECT my_nextval(1), nextval_of(1), setvalue(1), preset_config(1)",
    "UPDATE t SET a = 1",
    "INSERT INTO t (a) VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 2",
    "ALTER ROLE nobody SET work_mem = '1MB'",
    "GRANT EXECUTE ON FUNCTION f() TO nobody",
    "CREATE FUNCTION f() RETURNS int LANGUAGE sql SET search_path = pg_catalog, pg_temp AS 'SELECT 1'",
    "BEGIN; CREATE TABLE temp (a int); INSERT INTO temp VALUES (1); SELECT a INTO b FROM temp; ROLLBACK",
    "BEGIN; SELECT 1 AS a INTO temp FROM (VALUES (1)) v; ROLLBACK",
    "SELECT 1 AS local, 2 AS temporary, 3 AS execute, 4 AS declare",
    "EXPLAIN (COSTS off) SELECT 1",
    "BEGIN; SELECT pg_advisory_xact_lock(1), pg_try_advisory_xact_lock_shared(2); COMMIT",
    "LOCK TABLE pg_class IN ACCESS SHARE MODE",
    "NOTIFY news",
    "SELECT vectorforge.enter_tenant('a')",
]


@pytest.fixture
def detector(postgres_server: Any, private_dir: Callable[[str], Path]) -> Iterator[PinDetector]:
    """Start a separate detector that also judges the superuser, who may send anything."""
    with PinDetector(private_dir("own")) as detector:
        detector.listen(postgres_server.socket)
        yield detector


@pytest.fixture
def url(detector: PinDetector, make_database: Callable[..., str]) -> str:
    return make_conninfo(make_database(empty=True), host=str(detector.directory))


def connect(url: str, **options: Any) -> "psycopg.Connection[Any]":
    return psycopg.connect(url, **{"autocommit": True, "prepare_threshold": None, **options})


def rules(detector: PinDetector) -> set[PinRule]:
    return {pin.rule for pin in detector.take()}


def test_pin_rules_are_all_covered() -> None:
    elsewhere = {PinRule.NAMED_STATEMENT, PinRule.STARTUP}
    assert set(BROKEN) | elsewhere == set(PinRule)


@pytest.mark.parametrize("rule", BROKEN)
def test_pinning_statement_is_detected_by_its_rule(detector: PinDetector, url: str, rule: PinRule) -> None:
    with connect(url) as connection:
        for statement in BROKEN[rule]:
            with suppress(psycopg.Error):  # only the sending matters
                connection.execute(statement.encode())
            assert rules(detector) == {rule}, statement[:100]


def test_harmless_statement_is_not_detected(detector: PinDetector, url: str) -> None:
    with connect(url) as connection:
        for statement in ALLOWED:
            before = detector.statements
            with suppress(psycopg.Error):
                connection.execute(statement.encode())
            assert detector.statements == before + 1
            assert detector.take() == [], statement[:100]


def test_parameter_and_copy_data_are_not_parsed_as_statements(detector: PinDetector, url: str) -> None:
    with connect(url) as connection:
        text = "; SET work_mem = '1MB'; SELECT nextval('s');" * 10_000
        assert connection.execute("SELECT length(%s::text)", (text,)).fetchone() == (len(text),)
        connection.execute("CREATE TABLE lines (line text)")
        with connection.cursor().copy("COPY lines FROM STDIN") as copy:
            for _ in range(100):
                copy.write(b"SET work_mem = '1MB';\n")
        assert connection.execute("SELECT count(*) FROM lines").fetchone() == (100,)
    assert detector.take() == []


def test_driver_features_that_pin_are_detected(detector: PinDetector, url: str) -> None:
    with connect(url) as connection:
        connection.prepare_threshold = 0
        connection.execute("SELECT %s", (1,))
        connection.prepare_threshold = None
        assert rules(detector) == {PinRule.NAMED_STATEMENT}
        with connection.transaction(), connection.cursor("named") as cursor:
            cursor.execute("SELECT 1")
        assert rules(detector) == {PinRule.CURSOR}
        psycopg.ClientCursor(connection).execute("SELECT %s", ("x" * 20_000,))  # inlines the values
        assert rules(detector) == {PinRule.LONG_STATEMENT}


# The counterexample: the driver's default behavior
def test_default_prepare_threshold_pins(detector: PinDetector, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for number in range(8):
            assert connection.execute("SELECT %s::int + 1", (number,)).fetchone() == (number + 1,)
            assert rules(detector) == ({PinRule.NAMED_STATEMENT} if number == 5 else set())


def test_disabled_prepare_threshold_does_not_pin(detector: PinDetector, url: str) -> None:
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
        for number in range(8):
            assert connection.execute("SELECT %s::int + 1", (number,)).fetchone() == (number + 1,)
    assert detector.take() == []
    assert detector.messages["Parse"] == 8


class TestStartup:
    @pytest.mark.parametrize(
        ("option", "refused"),
        [
            ({"options": "-c work_mem=1MB"}, "options=-c work_mem=1MB"),
            ({"replication": "database"}, "replication=database"),
            ({"min_protocol_version": "3.2", "max_protocol_version": "3.2"}, "protocol=3.2"),
        ],
    )
    def test_startup_option_that_pins_is_detected(
        self, detector: PinDetector, url: str, option: dict[str, str], refused: str
    ) -> None:
        with connect(url, **option):
            [pin] = detector.take()
        assert (pin.rule, pin.sent, pin.role) == (PinRule.STARTUP, refused, "postgres")

    def test_harmless_startup_options_are_accepted(self, detector: PinDetector, url: str) -> None:
        with connect(url, application_name="vectorforge", client_encoding="utf8", connect_timeout=5):
            assert detector.take() == []
