"""The pin detector changes only the encryption, and neither hides nor causes faults."""

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.postgres.pin_detector import PinDetector
from tests.support.postgres.pin_rules import PinRule

SSL_REQUEST = struct.pack("!II", 8, 80877103)
GSS_REQUEST = struct.pack("!II", 8, 80877104)
STARTUP_BODY = struct.pack("!I", 3 << 16) + b"user\0postgres\0database\0postgres\0\0"
STARTUP = struct.pack("!I", len(STARTUP_BODY) + 4) + STARTUP_BODY
TIMEOUT_S = 60


@pytest.fixture
def detector(private_dir: Callable[[str], Path]) -> Iterator[PinDetector]:
    """Start a separate detector that judges every role."""
    with PinDetector(private_dir("own")) as detector:
        yield detector


@pytest.fixture
def url(detector: PinDetector, postgres_server: Any) -> str:
    """Return the superuser's URL, through the test's own detector."""
    detector.listen(postgres_server.socket)
    return make_conninfo(postgres_server.migrator_url, host=str(detector.directory))


@pytest.fixture
def observer(postgres_server: Any) -> "Iterator[psycopg.Connection[Any]]":
    """Connect to the server without the detector."""
    with psycopg.connect(postgres_server.migrator_url, autocommit=True) as connection:
        yield connection


def connect(url: str, **options: Any) -> "psycopg.Connection[Any]":
    return psycopg.connect(url, **{"autocommit": True, "prepare_threshold": None, **options})


def raw(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(TIMEOUT_S)
    client.connect(str(path))
    return client


def backend(connection: "psycopg.Connection[Any]") -> int:
    """Return the process of the connection; its cancellation key has another number."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    assert row[0] != connection.info.backend_pid
    return int(row[0])


def until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


class TestTransparency:
    def test_large_messages_pass_in_both_directions(self, url: str) -> None:
        data = os.urandom(1 << 20) * 20
        with connect(url) as connection:
            row = connection.execute("SELECT %b::bytea, md5(%b::bytea)", (data, data), binary=True).fetchone()
        assert row is not None
        assert row[0] == data

    def test_copy_passes_in_both_directions(self, url: str, observer: Any) -> None:
        lines = [f"{number}\t; SET work_mem = {number}\n".encode() for number in range(50_000)]
        with connect(url) as connection, connection.cursor() as cursor, connection.transaction():
            cursor.execute("CREATE TABLE copied (number int, line text)")
            with cursor.copy("COPY copied FROM STDIN") as copy:
                for line in lines:
                    copy.write(line)
            with cursor.copy("COPY copied TO STDOUT") as copy:
                assert b"".join(copy) == b"".join(lines)
            connection.execute("DROP TABLE copied")

    def test_two_hundred_connections_are_forwarded(self, detector: PinDetector, url: str) -> None:
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(connect(url)) for _ in range(200)]
            backends = {
                connection.execute("SELECT pg_backend_pid()").fetchone() for connection in connections
            }
            assert len(backends) == 200
            assert detector.connections == {"postgres": 200}

    def test_server_is_throttled_by_client_that_stops_reading(
        self, url: str, observer: "psycopg.Connection[Any]"
    ) -> None:
        rows = 200_000  # of 1,000 bytes
        process = psutil.Process()
        with connect(url) as connection:
            pid = backend(connection)
            before = process.memory_info().rss
            with connection.cursor().copy(
                f"COPY (SELECT repeat('x', 1000) FROM generate_series(1, {rows})) TO STDOUT".encode()
            ) as copy:
                waiting = "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event = 'ClientWrite'"
                until(lambda: observer.execute(waiting, (pid,)).fetchone() is not None)
                assert process.memory_info().rss - before < 20_000_000
                assert sum(len(data) for data in copy) == rows * 1001

    def test_client_is_throttled_by_server_that_stops_reading(
        self, detector: PinDetector, private_dir: Callable[[str], Path]
    ) -> None:
        path = private_dir("deaf") / ".s.PGSQL.5432"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            detector.listen(path)
            with raw(detector.directory / path.name) as client:
                client.sendall(STARTUP)
                server, _ = listener.accept()
                with server:
                    client.settimeout(2)
                    sent = 0
                    with contextlib.suppress(TimeoutError):
                        while sent < 50_000_000:
                            sent += client.send(bytes(100_000))
                    assert sent < 5_000_000


class TestEncryptionAndCancellation:
    def test_encryption_request_is_declined_and_connection_continues(
        self, detector: PinDetector, url: str, postgres_server: Any
    ) -> None:
        with raw(detector.directory / postgres_server.socket.name) as client:
            client.sendall(GSS_REQUEST)
            assert client.recv(1) == b"N"
            client.sendall(SSL_REQUEST[:5])
            client.sendall(SSL_REQUEST[5:])
            assert client.recv(1) == b"N"
            client.sendall(STARTUP[:9])
            client.sendall(STARTUP[9:] + b"Q" + struct.pack("!I", 13) + b"SELECT 1\0")
            received = b""
            while b"SELECT 1\0Z" not in received:  # CommandComplete, ReadyForQuery
                received += client.recv(4096)
            assert received.startswith(b"R\0\0\0\x08\0\0\0\0")  # AuthenticationOk
        assert detector.statements == 1

    def test_direct_tls_handshake_is_closed(
        self, detector: PinDetector, url: str, postgres_server: Any
    ) -> None:
        with raw(detector.directory / postgres_server.socket.name) as client:
            client.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
            assert client.recv(1) == b""

    def test_function_call_and_named_portal_are_detected(
        self, detector: PinDetector, url: str, postgres_server: Any
    ) -> None:
        with raw(detector.directory / postgres_server.socket.name) as client:
            client.sendall(STARTUP)
            for kind, body in ((b"F", bytes(10)), (b"B", b"portal\0\0" + bytes(6))):
                client.sendall(kind + struct.pack("!I", len(body) + 4) + body)
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                pass
        assert [pin.rule for pin in detector.take()] == [PinRule.OPAQUE, PinRule.CURSOR]

    def test_cancel_request_reaches_the_server(self, detector: PinDetector, url: str) -> None:
        with connect(url) as connection:
            timer = threading.Timer(0.3, connection.cancel_safe)
            timer.start()
            with pytest.raises(psycopg.errors.QueryCanceled):
                connection.execute("SELECT pg_sleep(60)")
            timer.join()
            assert connection.execute("SELECT 1").fetchone() == (1,)
        assert detector.cancel_requests == 1
        assert detector.connections.total() == 1


class TestFaults:
    def test_server_termination_is_forwarded_to_the_client(
        self, url: str, observer: "psycopg.Connection[Any]"
    ) -> None:
        with connect(url) as connection:
            observer.execute("SELECT pg_terminate_backend(%s, 10000)", (backend(connection),))
            with pytest.raises(psycopg.errors.AdminShutdown):  # its last message, then the end
                connection.execute("SELECT 1")
            assert connection.closed

    def test_disconnected_client_leaves_no_server_session(
        self, url: str, observer: "psycopg.Connection[Any]"
    ) -> None:
        with connect(url, autocommit=False) as connection:
            pid = connection.execute("SELECT pg_backend_pid()").fetchone()
            with socket.socket(fileno=os.dup(connection.fileno())) as own:
                own.shutdown(socket.SHUT_RDWR)
            there = "SELECT FROM pg_stat_activity WHERE pid = %s"
            until(lambda: observer.execute(there, pid).fetchone() is None)
            connection.close()

    def test_unreachable_server_closes_the_client(
        self, detector: PinDetector, private_dir: Callable[[str], Path]
    ) -> None:
        path = private_dir("nothing") / ".s.PGSQL.5432"
        detector.listen(path)
        with raw(detector.directory / path.name) as client:
            answer = b""
            with contextlib.suppress(ConnectionError):  # it may be closed before any message
                client.sendall(STARTUP)
                answer = client.recv(1)
            assert answer == b""

    def test_truncated_server_response_is_forwarded(
        self, detector: PinDetector, private_dir: Callable[[str], Path]
    ) -> None:
        path = private_dir("short") / ".s.PGSQL.5432"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            detector.listen(path)
            with raw(detector.directory / path.name) as client:
                client.sendall(STARTUP)
                server, _ = listener.accept()
                assert server.recv(len(STARTUP)) == STARTUP
                server.sendall(b"half an ans")
                server.close()
                assert client.recv(100) == b"half an ans"
                assert client.recv(100) == b""

    def test_detector_shutdown_closes_open_connections(
        self, postgres_server: Any, private_dir: Callable[[str], Path]
    ) -> None:
        with PinDetector(private_dir("ending")) as ending:
            ending.listen(postgres_server.socket)
            connection = connect(make_conninfo(postgres_server.migrator_url, host=str(ending.directory)))
            half_open = raw(ending.directory / postgres_server.socket.name)
        with half_open, connection:
            assert half_open.recv(1) == b""
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
