"""A physical standby of an embedded server, whose replay a test can pause, delay and stop."""

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from vectorforge.local.account import account_for
from vectorforge.local.cluster import binaries, version
from vectorforge.local.postgres import SUPERUSER, EmbeddedPostgres


class Standby(EmbeddedPostgres):
    """A standby made by pg_basebackup, which streams the changes of its primary.

    Args:
        primary: Socket of the primary.
        data_dir: Folder that does not exist yet, and is not below a closed one.
        settings: As the primary's.
    """

    def __init__(self, primary: Path, data_dir: Path, *, settings: Mapping[str, str]) -> None:
        super().__init__(data_dir, settings={"hot_standby_feedback": "on", **settings})
        self._primary = primary

    def start(self) -> None:
        """Copy the primary's data at the first start, and follow it."""
        if not self.data_dir.exists():
            account, folder = account_for(self.data_dir), str(self._primary.parent)
            program = binaries(version(self._primary.parent)) / "pg_basebackup"
            command = [str(program), "-h", folder, "-p", "5432", "-U", SUPERUSER, "-D", str(self.data_dir)]
            command += ["-R", "--checkpoint=fast", "--no-sync"]
            subprocess.run(command, check=True, cwd="/", stderr=subprocess.DEVNULL)
            for path in (self.data_dir, *self.data_dir.rglob("*")):
                account.own(path)
        super().start()

    @property
    def host(self) -> str:
        """Folder of the standby's socket."""
        return str(conninfo_to_dict(self.app_url)["host"])

    def execute(self, statement: str) -> object:
        """Run a statement as the superuser; return the first value, or None."""
        with psycopg.connect(self.migrator_url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            row = cursor.fetchone() if cursor.description else None
            return row and row[0]

    def delay(self, milliseconds: int) -> None:
        """Let replay of each commit wait for this long after the commit."""
        self.execute(f"ALTER SYSTEM SET recovery_min_apply_delay = {milliseconds}")
        self.execute("SELECT pg_reload_conf()")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Replay nothing within the block."""
        self.execute("SELECT pg_wal_replay_pause()")
        give_up_at = time.monotonic() + 30
        while self.execute("SELECT pg_get_wal_replay_pause_state()") != "paused":
            assert time.monotonic() < give_up_at
            time.sleep(0.005)
        try:
            yield
        finally:
            self.execute("SELECT pg_wal_replay_resume()")

    def catch_up(self, primary_url: str) -> None:
        """Wait until everything that the primary has written is replayed."""
        with psycopg.connect(primary_url, autocommit=True) as connection:
            row = connection.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
        assert row is not None
        give_up_at = time.monotonic() + 60
        while not self.execute(f"SELECT pg_last_wal_replay_lsn() >= '{row[0]}'::pg_lsn"):
            assert time.monotonic() < give_up_at
            time.sleep(0.005)


@dataclass(frozen=True)
class Replicated:
    """A server and its standby."""

    writer: EmbeddedPostgres
    standby: Standby

    def catch_up(self) -> None:
        """Wait until the standby has replayed everything."""
        self.standby.catch_up(self.writer.migrator_url)
