"""The embedded server is found again, survives crashes, and never touches what is not its own."""

import asyncio
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from vectorforge.db.connection import Database
from vectorforge.db.schema.migrate import migrate
from vectorforge.errors import ConfigurationError, DatabaseUnavailableError
from vectorforge.local.account import account_for
from vectorforge.local.cluster import binaries, is_alive, passable
from vectorforge.local.laptop import default_data_dir, leased
from vectorforge.local.postgres import EmbeddedPostgres


@pytest.fixture
def place(private_dir: Callable[[str], Path]) -> Iterator[Path]:
    """Where a data directory may be made; whatever runs there at the end is stopped."""
    directory = private_dir("own")
    yield directory
    kill_below(directory)
    shutil.rmtree(directory)


def kill_below(directory: Path) -> None:
    for process in psutil.process_iter():
        try:
            if process.name() == "postgres" and Path(process.cwd()).is_relative_to(directory):
                process.kill()
        except psutil.Error:
            pass  # gone meanwhile, or another user's


def run(server: EmbeddedPostgres, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(server.migrator_url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def kill(server: EmbeddedPostgres) -> None:
    """kill -9 of the server's first process, as by the kernel when memory runs out."""
    os.kill(server.pid, signal.SIGKILL)


def test_started_found_and_stopped(place: Path) -> None:
    first, second = EmbeddedPostgres(place / "data"), EmbeddedPostgres(place / "data")
    with pytest.raises(DatabaseUnavailableError):
        _ = first.app_url
    first.start()
    run(first, "CREATE TABLE kept (n int)")
    second.start()
    assert second.pid == first.pid
    assert run(second, "SELECT count(*) FROM kept") == [(0,)]
    assert second.stop()
    assert not is_alive(first.pid)
    first.start()
    assert run(first, "SELECT count(*) FROM kept") == [(0,)]


def test_it_is_not_stopped_under_somebody_else(place: Path) -> None:
    server = EmbeddedPostgres(place / "data")
    server.start()
    with psycopg.connect(server.migrator_url) as connection:
        assert not server.stop()
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert server.stop()
    assert server.stop()  # nothing runs: that is stopped


def test_it_outlives_the_process_that_started_it(place: Path) -> None:
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
def test_kill_9_and_start_again(place: Path) -> None:
    server = EmbeddedPostgres(place / "data")
    server.start()
    run(server, "CREATE TABLE kept (n int)")
    for number in range(5):
        run(server, f"INSERT INTO kept VALUES ({number})")
        kill(server)
        EmbeddedPostgres(place / "data").start()
        server.start()
        assert run(server, "SELECT n FROM kept ORDER BY n") == [(n,) for n in range(number + 1)]


def test_stale_pid_files(place: Path) -> None:
    """Power cut: the file is left, and its number is nobody's or, after the reboot, somebody else's."""
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


def snapshot(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize(
    "files",
    [
        {"thesis.txt": "three years of work"},
        {"PG_VERSION": "18\n"},  # an initialisation that was cut off, or a copy that is not complete
        {"PG_VERSION": "18\n", "base/1/1259": "rows", "global/1260": "roles"},
    ],
)
def test_what_is_no_data_directory_stays_as_it_is(place: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = place / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    before = snapshot(place / "data")
    with pytest.raises(ConfigurationError, match=str(place / "data")):
        EmbeddedPostgres(place / "data").start()
    assert snapshot(place / "data") == before


def test_a_file_in_its_place(place: Path) -> None:
    (place / "data").write_text("a file")
    with pytest.raises(ConfigurationError):
        EmbeddedPostgres(place / "data").start()


def test_another_version_of_postgresql(place: Path) -> None:
    server = EmbeddedPostgres(place / "data")
    server.start()
    server.stop()
    (server.data_dir / "PG_VERSION").write_text("99\n")
    with pytest.raises(ConfigurationError, match="99"):
        server.start()


def test_an_empty_directory_is_used(place: Path) -> None:
    (place / "data").mkdir()
    server = EmbeddedPostgres(place / "data")
    server.start()
    assert run(server, "SHOW server_encoding") == [("UTF8",)]
    assert {path.name for path in place.iterdir()} == {"data", ".data.lock"}


def test_a_start_that_is_interrupted_leaves_nothing(place: Path) -> None:
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


def test_ten_processes_start_it_at_once(place: Path) -> None:
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


def test_a_very_long_path(place: Path) -> None:
    server = EmbeddedPostgres(place / ("long" * 25) / "data, of \"mine\" and 'yours' $HOME")
    server.start()
    assert run(server, "SELECT 1") == [(1,)]
    again = EmbeddedPostgres(server.data_dir)
    again.start()
    assert again.pid == server.pid
    socket_dir = psycopg.conninfo.conninfo_to_dict(server.app_url)["host"]
    assert Path(str(socket_dir)).stat().st_mode & 0o077 == 0
    server.stop()
    shutil.rmtree(str(socket_dir))


def test_nobody_else_reaches_it_and_settings_count(place: Path) -> None:
    server = EmbeddedPostgres(place / "data", settings={"max_connections": "33", "work_mem": "7MB"})
    server.start()
    assert run(server, "SHOW listen_addresses") == [("",)]
    assert server.data_dir.stat().st_mode & 0o077 == 0
    assert run(server, "SHOW fsync") == [("on",)]
    assert run(server, "SHOW max_connections") == [("33",)]
    assert run(server, "SHOW work_mem") == [("7MB",)]


def test_the_reason_is_in_the_log(place: Path) -> None:
    server = EmbeddedPostgres(place / "data", settings={"work_mem": "nonsense"})
    with pytest.raises(DatabaseUnavailableError, match=r"server\.log"):
        server.start()
    assert "nonsense" in server.log_path.read_text()


# Decision 10
async def test_the_app_works_on_it_as_its_own_role(place: Path) -> None:
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


def test_it_is_stopped_by_the_last_that_needs_it(place: Path) -> None:
    """Also after a kill -9, when nobody is connected and a short command has started it again."""
    with leased(EmbeddedPostgres(place / "data")):
        first = EmbeddedPostgres(place / "data")
        first.start()
        kill(first)
        second = EmbeddedPostgres(place / "data")
        with leased(second):
            pass
        assert is_alive(second.pid)
    assert not is_alive(second.pid)


ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another account")


@ONLY_ROOT
def test_a_closed_directory_is_refused_and_stays_closed(place: Path) -> None:
    home = place / "home"
    home.mkdir(mode=0o700)
    with pytest.raises(ConfigurationError, match=f"chmod o.x {home}"):
        EmbeddedPostgres(home / "folder" / "data").start()
    assert home.stat().st_mode & 0o777 == 0o700


@ONLY_ROOT
def test_programs_below_a_closed_directory_run_from_beside_the_data(place: Path) -> None:
    """As in a virtual environment below root's home."""
    home = place / "home"
    home.mkdir(mode=0o700)
    package = binaries(18).parents[1]
    for name in (package.name, f"{package.name}.libs"):
        shutil.copytree(package.with_name(name), home / name, copy_function=os.link)
    account = account_for(place / "data")
    for _ in range(2):
        bin_dir = passable(home / package.name / "pginstall18" / "bin", account, place)
        assert not bin_dir.is_relative_to(home)
        done = subprocess.run(
            [bin_dir / "initdb", "--version"], **account.run_as(), capture_output=True, check=True
        )
        assert b"PostgreSQL" in done.stdout
    assert home.stat().st_mode & 0o777 == 0o700
    assert len(list(place.iterdir())) == 2, "one copy"


@ONLY_ROOT
def test_the_default_place_of_root_is_one_that_its_server_reaches(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = place / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    assert default_data_dir() == Path("/var/lib/vectorforge")
    home.chmod(0o711)
    assert default_data_dir() == home / ".local" / "share" / "vectorforge"
    EmbeddedPostgres(default_data_dir() / "postgres").start()  # below folders that it makes itself
    assert home.stat().st_mode & 0o777 == 0o711
