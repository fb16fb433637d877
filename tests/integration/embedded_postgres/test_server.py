"""The embedded server: data directory, settings, access, and accounts."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.postgres.embedded import run
from vectorforge.errors import ConfigurationError, DatabaseUnavailableError
from vectorforge.local.account import account_for
from vectorforge.local.cluster import binaries, is_alive, passable
from vectorforge.local.laptop import default_data_dir
from vectorforge.local.postgres import EmbeddedPostgres


def snapshot(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_server_is_started_found_and_stopped(place: Path) -> None:
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


def test_stop_with_other_client_connected_is_rejected(place: Path) -> None:
    server = EmbeddedPostgres(place / "data")
    server.start()
    with psycopg.connect(server.migrator_url) as connection:
        assert not server.stop()
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert server.stop()
    assert server.stop()  # no server runs: it counts as stopped


@pytest.mark.parametrize(
    "files",
    [
        {"thesis.txt": "three years of work"},
        {"PG_VERSION": "18\n"},  # an interrupted initialization, or an incomplete copy
        {"PG_VERSION": "18\n", "base/1/1259": "rows", "global/1260": "roles"},
    ],
)
def test_start_in_other_directory_is_rejected_and_changes_nothing(place: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = place / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    before = snapshot(place / "data")
    with pytest.raises(ConfigurationError, match=str(place / "data")):
        EmbeddedPostgres(place / "data").start()
    assert snapshot(place / "data") == before


def test_start_in_place_of_a_file_is_rejected(place: Path) -> None:
    (place / "data").write_text("a file")
    with pytest.raises(ConfigurationError):
        EmbeddedPostgres(place / "data").start()


def test_start_with_data_of_unknown_version_is_rejected(place: Path) -> None:
    server = EmbeddedPostgres(place / "data")
    server.start()
    server.stop()
    (server.data_dir / "PG_VERSION").write_text("99\n")
    with pytest.raises(ConfigurationError, match="99"):
        server.start()


def test_start_in_empty_directory_creates_the_database(place: Path) -> None:
    (place / "data").mkdir()
    server = EmbeddedPostgres(place / "data")
    server.start()
    assert run(server, "SHOW server_encoding") == [("UTF8",)]
    assert {path.name for path in place.iterdir()} == {"data", ".data.lock"}


def test_start_in_very_long_path_uses_a_private_socket_directory(place: Path) -> None:
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


def test_server_is_private_and_uses_its_settings(place: Path) -> None:
    server = EmbeddedPostgres(place / "data", settings={"max_connections": "33", "work_mem": "7MB"})
    server.start()
    assert run(server, "SHOW listen_addresses") == [("",)]
    assert server.data_dir.stat().st_mode & 0o077 == 0
    assert run(server, "SHOW fsync") == [("on",)]
    assert run(server, "SHOW max_connections") == [("33",)]
    assert run(server, "SHOW work_mem") == [("7MB",)]


def test_failed_start_names_its_reason_and_the_log(place: Path) -> None:
    for value in ("rubbish", "nonsense"):
        server = EmbeddedPostgres(place / "data", settings={"work_mem": value})
        with pytest.raises(DatabaseUnavailableError, match=rf'"work_mem": "{value}".*server\.log'):
            server.start()
    assert "nonsense" in server.log_path.read_text()


ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another account")


@ONLY_ROOT
def test_start_below_a_closed_directory_is_rejected(place: Path) -> None:
    home = place / "home"
    home.mkdir(mode=0o700)
    with pytest.raises(ConfigurationError, match=f"chmod o.x {home}"):
        EmbeddedPostgres(home / "folder" / "data").start()
    assert home.stat().st_mode & 0o777 == 0o700


@ONLY_ROOT
def test_copy_without_owners_is_rejected_with_the_command_that_mends_it(place: Path) -> None:
    server = EmbeddedPostgres(place / "data")
    server.start()
    assert server.stop()
    copy = EmbeddedPostgres(place / "copy")
    shutil.copytree(server.data_dir, copy.data_dir)  # as `cp -r`
    with pytest.raises(ConfigurationError, match=rf"cp -a.*chown -R \d+:\d+ {copy.data_dir}"):
        copy.start()


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """Create a directory as ``place``, but on the file system of the programs."""
    with tempfile.TemporaryDirectory(prefix="vf-own-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@ONLY_ROOT
def test_programs_below_a_closed_directory_are_linked_next_to_the_data(on_disk: Path) -> None:
    """As for a virtual environment below root's home."""
    home = on_disk / "home"
    home.mkdir(mode=0o700)
    package = binaries(18).parents[1]
    for name in (package.name, f"{package.name}.libs"):
        shutil.copytree(package.with_name(name), home / name, copy_function=os.link)
    account = account_for(on_disk / "data")
    for _ in range(2):
        bin_dir = passable(home / package.name / "pginstall18" / "bin", account, on_disk)
        assert not bin_dir.is_relative_to(home)
        done = subprocess.run(
            [bin_dir / "initdb", "--version"], **account.run_as(), capture_output=True, check=True
        )
        assert b"PostgreSQL" in done.stdout
    assert home.stat().st_mode & 0o777 == 0o700
    assert len(list(on_disk.iterdir())) == 2, "one copy"


@ONLY_ROOT
def test_default_folder_of_root_is_accessible_to_its_server(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = place / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    assert default_data_dir() == Path("/var/lib/vectorforge")
    home.chmod(0o711)
    assert default_data_dir() == home / ".local" / "share" / "vectorforge"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_data_dir() == home / ".local" / "share" / "vectorforge"
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "xdg"))
    assert default_data_dir() == home / "xdg" / "vectorforge"
    monkeypatch.delenv("XDG_DATA_HOME")
    EmbeddedPostgres(default_data_dir() / "postgres").start()  # below folders that it creates itself
    assert home.stat().st_mode & 0o777 == 0o711
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "xdg"))
    assert default_data_dir() == home / ".local" / "share" / "vectorforge", "where the data already is"
