"""PgBouncer in transaction mode in front of a PostgreSQL server, as a stricter stand-in for RDS Proxy."""

import os
import pwd
import shutil
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from psycopg.conninfo import make_conninfo

from vectorforge.db.login import LOGIN_ROLES

PGBOUNCER = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
ADMINISTRATOR = "postgres"
"""The role that may connect to the database ``pgbouncer``, where ``SHOW POOLS`` and the like are answered."""

_PORT = 6432
_START_TIMEOUT_S = 10
_MOST_CRASHES = 100
"""Maximum number of restarts; after that it cannot run here."""


class PgBouncer:
    """Runs while it is an entered context manager; listens on a Unix socket.

    It is restarted when it exits, as by systemd: version 1.18 exits now and then when clients disconnect
    that have sent a cancel request (https://github.com/pgbouncer/pgbouncer/issues/801).

    Args:
        directory: Its own directory, with a short path that other accounts may traverse. As root, it runs as
            the account of the server.
        server: The server's Unix socket.
        pool_size: Server connections for each database and role.
        asks_for_passwords: Whether a role needs its current password on the server. Otherwise every client is
            trusted, the server's superuser included.
    """

    def __init__(
        self, directory: Path, server: Path, *, pool_size: int = 5, asks_for_passwords: bool = False
    ) -> None:
        self.socket = directory / f".s.PGSQL.{_PORT}"
        self.host = directory
        """Directory of the socket that clients use: a relay's, if there is one."""
        self._directory = directory
        self._server = server
        self._pool_size = pool_size
        self._asks = asks_for_passwords
        self.crashes: list[str] = []
        """Last output of each exit."""
        self._lock = threading.Lock()
        self._is_over = False

    def route(self, conninfo: str) -> str:
        """Return the connection string of the same role and database through PgBouncer."""
        return make_conninfo(conninfo, host=str(self.host), port=_PORT)

    def __enter__(self) -> Self:
        directory, log = self._directory, self._directory / "log"
        believed = (ADMINISTRATOR,) if self._asks else (*LOGIN_ROLES, ADMINISTRATOR)
        users = "".join(f'"{role}" ""\n' for role in believed)
        # by default it queries pg_shadow, at every login
        authentication = f"scram-sha-256\nauth_user = {ADMINISTRATOR}" if self._asks else "trust"
        (directory / "users.txt").write_text(users)
        (directory / "pgbouncer.ini").write_text(
            f"[databases]\n* = host={self._server.parent} port={self._server.suffix.removeprefix('.')}\n"
            f"[pgbouncer]\npool_mode = transaction\nauth_type = {authentication}\n"
            f"auth_file = {directory}/users.txt\n"
            f"listen_addr =\nlisten_port = {_PORT}\nunix_socket_dir = {directory}\nlogfile = {log}\n"
            f"max_client_conn = 500\ndefault_pool_size = {self._pool_size}\nadmin_users = {ADMINISTRATOR}\n"
            "server_login_retry = 1\n"  # after a failed login all logins wait this long; 15 s by default
        )
        command = [PGBOUNCER, str(directory / "pgbouncer.ini")]
        if os.geteuid() == 0:
            account = pwd.getpwuid(self._server.stat().st_uid)
            for path in (directory, *directory.iterdir()):
                os.chown(path, account.pw_uid, account.pw_gid)
            command[1:1] = ["-u", account.pw_name]
        self._command = command
        self._start()
        give_up_at = time.monotonic() + _START_TIMEOUT_S
        while not self.socket.exists():
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < give_up_at, "PgBouncer did not start"
            time.sleep(0.02)
        threading.Thread(target=self._supervise, name="pgbouncer", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_over = True
            self._process.terminate()
        self._process.wait(_START_TIMEOUT_S)

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _supervise(self) -> None:
        while True:
            self._process.wait()
            with self._lock:
                if self._is_over:
                    return
                lines = (self._directory / "log").read_text().splitlines()
                self.crashes.append(next((line for line in reversed(lines) if "FATAL" in line), "no word"))
                if len(self.crashes) > _MOST_CRASHES:
                    return
                self._start()
