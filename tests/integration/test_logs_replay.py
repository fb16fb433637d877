"""``vectorforge logs replay`` as an operator runs it: records from CloudWatch are stored once."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.rag.query_logs import make_log, message, started
from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.local.postgres import EmbeddedPostgres

VECTORFORGE = Path(sys.executable).with_name("vectorforge")
Rows: TypeAlias = Callable[[str], Awaitable[list[QueryLog]]]


def replay(
    *arguments: str, url: str, stdin: bytes = b"", code: int = 0
) -> "subprocess.CompletedProcess[bytes]":
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VECTORFORGE_")}
    done = subprocess.run(
        [VECTORFORGE, "logs", "replay", *arguments],
        env={**inherited, "VECTORFORGE_LOG_WRITER_DATABASE_URL": url},
        input=stdin, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done


async def test_replay_reads_every_input_format_and_stores_records_once(
    postgres_server: EmbeddedPostgres, rows: Rows, make_tenant: Callable[[], str], tmp_path: Path
) -> None:  # C01
    tenant, logs = make_tenant(), [make_log(query_text=f"Frage 🙂 {number}") for number in range(1200)]
    lines = [message(tenant, log) for log in logs]
    tailed = tmp_path / "tail.log"
    tailed.write_text(
        "".join(f"2026-11-22T10:00:00+00:00 2026/11/22/[$LATEST]0123abcd {line}\n" for line in lines[:600])
    )
    wrapped = tmp_path / "events.json"
    wrapped.write_text(
        json.dumps({"events": [{"message": line + "\n"} for line in lines[600:900]]}, indent=4)
    )
    packed = tmp_path / "export.gz"
    packed.write_bytes(
        gzip.compress("\n".join(f"2026-11-22T10:00:00.1Z {x}" for x in lines[900:1100]).encode())
    )
    printed = "\n".join(
        ["START RequestId: x", *(message(tenant, started(log)) for log in logs), *lines[1100:]]
    )
    arguments = [str(tailed), str(wrapped), str(packed), "-", "--json"]
    for expected in ((1200, 1200), (0, 2400)):
        done = replay(*arguments, url=postgres_server.log_writer_url, stdin=printed.encode())
        summary: dict[str, Any] = json.loads(done.stdout)
        assert (summary["records"], summary["refused"]) == (2400, 0)
        assert (summary["added"], summary["already_there"]) == expected
    found = await rows(tenant)
    assert len(found) == 1000  # a page
    assert {row.outcome for row in found} == {"answered"}
    by_id = {log.id: log for log in logs}
    assert all(row == by_id[row.id] for row in found)


async def test_invalid_lines_are_named_without_their_content(
    postgres_server: EmbeddedPostgres, rows: Rows, make_tenant: Callable[[], str]
) -> None:  # C01
    tenant, log = make_tenant(), make_log()
    broken = message(tenant, make_log(outcome="CANARY"))
    lines = ["nothing", broken, message(tenant, log), message(tenant, make_log())[:-20]]
    done = replay(url=postgres_server.log_writer_url, stdin="\n".join(lines).encode(), code=1)
    assert done.stdout.decode().splitlines() == [
        "lines\trecords\tadded\talready_there\trefused",
        "4\t3\t1\t0\t2",
    ]
    errors = done.stderr.decode()
    assert "standard input, line 2: The query log is not usable: outcome: literal_error." in errors
    assert "standard input, line 4: The message is not JSON." in errors
    assert "CANARY" not in errors
    assert await rows(tenant) == [log]


def test_record_rejected_by_database_is_named_and_others_stored(
    make_database: Callable[..., str],
) -> None:  # C01
    migrator_url = make_database()
    lines = [message("tenant", make_log(model=model)) for model in ("a", "forbidden", "b")]
    with psycopg.connect(migrator_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE vectorforge.query_logs ADD CHECK (model <> 'forbidden')")
        url = make_conninfo(migrator_url, user="vectorforge_log_writer")
        done = replay(url=url, stdin="\n".join(lines).encode(), code=1)
        found = connection.execute("SELECT model FROM vectorforge.query_logs ORDER BY model").fetchall()
    assert found == [("a",), ("b",)]
    assert "standard input, line 2: The database rejected a value or a row" in done.stderr.decode()


def test_line_mentioning_a_record_without_holding_one_is_reported(
    postgres_server: EmbeddedPostgres,
) -> None:  # C01
    lines = [message("tenant", make_log()), "The question was " + message("tenant", make_log(model="CANARY"))]
    done = replay("--json", url=postgres_server.log_writer_url, stdin="\n".join(lines).encode())
    summary = json.loads(done.stdout)
    assert (summary["records"], summary["added"], summary["unread"]) == (1, 1, 1)
    done = replay(url=postgres_server.log_writer_url, stdin="\n".join(lines).encode())
    assert "standard input, line 2: names the type of query logs" in done.stderr.decode()
    assert "CANARY" not in done.stderr.decode()


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08broken", gzip.compress(b"x" * 5000, mtime=0)[:-9]])
def test_truncated_gzip_file_is_rejected(
    postgres_server: EmbeddedPostgres, tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "export.gz"
    file.write_bytes(content)
    done = replay(str(file), url=postgres_server.log_writer_url, code=2)
    assert f"{file} cannot be read" in done.stderr.decode()


def test_replay_with_invalid_source_or_database_exits_with_error(postgres_server: EmbeddedPostgres) -> None:
    assert b"does not exist" in replay("/nowhere", url=postgres_server.log_writer_url, code=2).stderr
    unreachable = "postgresql://vectorforge_log_writer@127.0.0.1:1/x"
    assert b"cannot be reached" in replay(url=unreachable, code=3).stderr
    assert b"superuser" in replay(url=postgres_server.migrator_url, code=2).stderr


def test_replay_uses_embedded_database_by_default(private_dir: Callable[[str], Path]) -> None:
    folder = private_dir("replay")
    log = message("local", make_log())
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VECTORFORGE_")}
    try:
        done = subprocess.run(
            [VECTORFORGE, "logs", "replay", "--json", "--data-dir", str(folder / "data")],
            env=inherited, input=log.encode(), capture_output=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["added"] == 1
    finally:
        EmbeddedPostgres(folder / "data" / "postgres").stop(force=True)
