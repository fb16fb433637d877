"""Who needs the embedded server: it runs as long as one process does, and is started again if it dies."""

import fcntl
import logging
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vectorforge.errors import DatabaseUnavailableError, VectorForgeError
from vectorforge.local.postgres import EmbeddedPostgres

if TYPE_CHECKING:  # only a laptop has it
    from psycopg import Connection

logger = logging.getLogger(__name__)

_START_ATTEMPTS = 5
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0


@contextmanager
def leased(server: EmbeddedPostgres, *, supervised: bool = False) -> Iterator[None]:
    """Start the server, keep it for the length of the block, and stop it with the last one that needs it.

    A lock on a file says that it is needed. A connection would not do for that: it is lost when the server is
    killed, and a command that starts the server again would stop it under everybody else when it ends.

    Args:
        server: Started here.
        supervised: Start it again whenever it dies.

    Raises:
        ConfigurationError: As ``EmbeddedPostgres.start``.
        DatabaseUnavailableError: It does not start.
    """
    with _needed(server.data_dir) as needed:
        supervisor = _Supervisor(server, _connect(server))
        if supervised:
            supervisor.start()
        try:
            yield
        finally:
            supervisor.stop()
            if needed.is_last():
                server.stop()


class _Need:
    def __init__(self, file: Any) -> None:
        self._file = file

    def is_last(self) -> bool:
        """Give the own need up; whether nobody else has one. Who comes now waits for the end of the block."""
        fcntl.flock(self._file, fcntl.LOCK_UN)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextmanager
def _needed(data_dir: Path) -> Iterator[_Need]:
    with data_dir.with_name(f".{data_dir.name}.needed").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield _Need(file)


def _connect(server: EmbeddedPostgres) -> "Connection[tuple[object, ...]]":
    """Start the server and stay connected, to hear of its end at once."""
    from psycopg import Connection, OperationalError

    for _ in range(_START_ATTEMPTS):
        server.start()
        try:
            return Connection.connect(server.migrator_url, autocommit=True)
        except OperationalError:
            continue  # killed, or stopped by somebody, between the two lines above
    raise DatabaseUnavailableError(f"The embedded PostgreSQL keeps stopping; see {server.log_path}.")


class _Supervisor:
    """Starts the server again when the connection to it dies, from a thread of its own."""

    def __init__(self, server: EmbeddedPostgres, connection: "Connection[tuple[object, ...]]") -> None:
        self._server = server
        self._connection = connection
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._wake, self._waker = socket.socketpair()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, name="embedded-postgres", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, after the start that it may be in the middle of, and the connection."""
        self._stopping.set()
        self._waker.send(b"x")
        if self._thread is not None:
            self._thread.join()
        self._connection.close()
        self._wake.close()
        self._waker.close()

    def _watch(self) -> None:
        while self._until_it_dies():
            logger.warning("The embedded PostgreSQL has ended; starting it again.")
            self._restart()

    def _until_it_dies(self) -> bool:
        """Wait for the server's end; False when it is not to be started again."""
        from psycopg import Error

        while not self._stopping.is_set():
            try:
                with selectors.DefaultSelector() as selector:
                    selector.register(self._connection.fileno(), selectors.EVENT_READ)
                    selector.register(self._wake, selectors.EVENT_READ)
                    selector.select()
                if not self._stopping.is_set():
                    self._connection.execute("SELECT 1")  # it may have been a notice only
            except Error:
                return not self._stopping.is_set()
        return False

    def _restart(self) -> None:
        pause_s = _FIRST_PAUSE_S
        self._connection.close()
        while not self._stopping.is_set():
            try:
                self._connection = _connect(self._server)
            except (VectorForgeError, OSError) as exc:
                logger.debug("The embedded PostgreSQL does not start (%s)", type(exc).__name__)
                self._stopping.wait(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            else:
                return
