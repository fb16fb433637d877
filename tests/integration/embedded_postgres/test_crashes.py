"""The embedded server across processes, crashes and power cuts."""

import asyncio
import logging
import multiprocessing
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from tests.support.postgres.embedded import kill, run
from vectorforge.db.connection import Database
from vectorforge.db.schema.migrate import migrate
from vectorforge.errors import DatabaseUnavailableError
from vectorforge.local.cluster import is_alive
from vectorforge.local.laptop import leased
from vectorforge.local.postgres import EmbeddedPostgres


def test_server_outlives_the_process_that_started_it(place: Path) -> None:
    code = f"""
        from pathlib import Path
        from vectorforge.local.postgres import EmbeddedPostgres
        server = EmbeddedPostgres(Path({str(place / "data")!r}))
        server.start()
        print(server.pid)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=True,
        text=True,
    )
    server = EmbeddedPostgres(place / "data")
    server.start()
    assert server.pid == int(done.stdout)


# Fault 49
def test_server_after_kill_9_starts_with_its_data(place: Path) -> None:
    server = EmbeddedPostgres(place / "data")
    server.start()
    run(server, "CREATE TABLE kept (n int)")
    for number in range(5):
        run(server, f"INSERT INTO kept VALUES ({number})")
        kill(server)
        EmbeddedPostgres(place / "data").start()
        server.start()
        assert run(server, "SELECT n FROM kept ORDER BY n") == [(n,) for n in range(number + 1)]


def test_server_with_stale_pid_file_starts(place: Path) -> None:
    """After a power cut the pid file is left, and its number is unused or another process's."""
    server = EmbeddedPostgres(place / "data")
    server.start()
    pid_file = server.data_dir / "postmaster.pid"
    rest = pid_file.read_text().splitlines()[1:]
    server.stop()
    user = server.data_dir.stat().st_uid if os.geteuid() == 0 else None
    ended = subprocess.Popen(["true"], user=user)
    ended.wait()
    other = subprocess.Popen(["sleep", "60"], user=user)
    try:
        whole = ["\n".join([str(pid), *rest]) + "\n" for pid in (ended.pid, other.pid)]
        for content in (*whole, "", "garbage\n", f"{other.pid}", f"{other.pid}\n/elsewhere\n"):
            pid_file.write_text(content)
            server.start()
            assert run(server, "SELECT 1") == [(1,)]
            server.stop()
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@pytest.mark.slow  # the start waits 20 s
def test_start_beside_process_that_does_not_end_names_what_to_kill(place: Path) -> None:
    server = EmbeddedPostgres(place / "data")
    server.start()
    child = psutil.Process(server.pid).children()[0]
    child.suspend()
    try:
        kill(server)
        with pytest.raises(DatabaseUnavailableError, match=rf"still ending: retry, or kill -9 {child.pid}\."):
            EmbeddedPostgres(place / "data").start()
    finally:
        child.kill()
    EmbeddedPostgres(place / "data").start()
    assert run(server, "SELECT 1") == [(1,)]


def test_start_after_an_interrupted_start_succeeds(place: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=EmbeddedPostgres(place / "data").start)
    process.start()
    give_up_at = time.monotonic() + 30
    while not list(place.glob(".data.*[!k]")) and time.monotonic() < give_up_at:
        time.sleep(0.005)
    process.kill()
    process.join()
    server = EmbeddedPostgres(place / "data")
    server.start()
    assert run(server, "SELECT 1") == [(1,)]


def test_concurrent_starts_return_one_server(place: Path) -> None:
    code = f"""
        from pathlib import Path
        from vectorforge.local.postgres import EmbeddedPostgres
        server = EmbeddedPostgres(Path({str(place / "data")!r}))
        server.start()
        print(server.pid)
    """
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(10)
    ]
    outputs = [process.communicate(timeout=90)[0] for process in processes]
    assert len(set(outputs)) == 1
    assert outputs[0].strip().isdigit()


# Decision 10
async def test_app_role_reconnects_after_kill_9(place: Path) -> None:
    server = EmbeddedPostgres(place / "data")
    await asyncio.to_thread(server.start)
    await migrate(server.migrator_url)
    async with Database(server.app_url, pool_size=1, timeout_s=3) as database:
        row = await database.for_tenant("local").fetch_one("SELECT current_user AS who, version() AS version")
        assert row is not None
        assert row["who"] == "vectorforge_app"
        assert "PostgreSQL 18" in row["version"]
        await asyncio.to_thread(kill, server)
        await asyncio.to_thread(server.start)
        assert (await database.health()).healthy  # the same pool, a new server


def test_server_is_stopped_by_its_last_user(place: Path) -> None:
    """Also after a kill -9, without clients, once a short command has restarted it."""
    with leased(EmbeddedPostgres(place / "data")):
        first = EmbeddedPostgres(place / "data")
        first.start()
        kill(first)
        second = EmbeddedPostgres(place / "data")
        with leased(second):
            pass
        assert is_alive(second.pid)
    assert not is_alive(second.pid)


def test_restart_that_fails_is_reported_once_with_disk_space_and_log(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = EmbeddedPostgres(place / "data")
    with caplog.at_level(logging.WARNING), leased(server, supervised=True):
        control = server.data_dir / "global" / "pg_control"
        control.rename(control.with_suffix(".away"))
        kill(server)
        give_up_at = time.monotonic() + 60
        while "does not start" not in caplog.text and time.monotonic() < give_up_at:
            time.sleep(0.05)
        control.with_suffix(".away").rename(control)
        while not is_alive(server.pid) and time.monotonic() < give_up_at:
            time.sleep(0.05)
        assert run(server, "SELECT 1") == [(1,)]
    assert caplog.text.count("does not start") == 1
    assert f"MiB. Its log: {server.log_path}" in caplog.text
