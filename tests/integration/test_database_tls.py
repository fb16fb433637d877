"""verify-full with the real driver: the right server is accepted, any other rejected with its reason."""

import asyncio
import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from trustme import CA, LeafCert

from infra.bundling.database_certificates import write_database_certificates
from tests.conftest import ObservedPostgres
from tests.support.postgres.pgbouncer import PGBOUNCER
from vectorforge.db.connection import Database
from vectorforge.db.schema.migrate import pending
from vectorforge.errors import DatabaseLoginError, UntrustedDatabaseError

ENDPOINT = "vectorforge.proxy-abcdefghijkl.eu-central-1.rds.amazonaws.com"


@pytest.fixture(scope="module")
def authority() -> CA:
    return CA()


@contextmanager
def pgbouncer(directory: Path, server: ObservedPostgres, certificate: LeafCert | None) -> Iterator[int]:
    """Start PgBouncer on a port of 127.0.0.1, with or without TLS."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    account = pwd.getpwuid(server.data_dir.stat().st_uid)
    lines = [
        f"[databases]\n* = host={server.socket.parent} port=5432\n[pgbouncer]\npool_mode = transaction",
        f"auth_type = trust\nauth_file = {directory}/users.txt\nlisten_addr = 127.0.0.1",
        f"listen_port = {port}\nunix_socket_dir =\nlogfile = {directory}/log",
    ]
    if certificate is not None:
        lines.append(
            f"client_tls_sslmode = require\nclient_tls_key_file = {directory}/key\n"
            f"client_tls_cert_file = {directory}/certificate"
        )
        certificate.private_key_pem.write_to_path(directory / "key")
        certificate.cert_chain_pems[0].write_to_path(directory / "certificate")
    (directory / "pgbouncer.ini").write_text("\n".join(lines) + "\n")
    (directory / "users.txt").write_text('"vectorforge_app" ""\n"postgres" ""\n')
    command = [PGBOUNCER, str(directory / "pgbouncer.ini")]
    if os.geteuid() == 0:
        for path in (directory, *directory.iterdir()):
            os.chown(path, account.pw_uid, account.pw_gid)
        command[1:1] = ["-u", account.pw_name]
    process = subprocess.Popen(command, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        give_up_at = time.monotonic() + 10
        while not _listens(port):
            assert process.poll() is None, (directory / "log").read_text()
            assert time.monotonic() < give_up_at, "PgBouncer did not start"
            time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="module")
def port(
    postgres_server: ObservedPostgres, private_dir: Callable[[str], Path], authority: CA
) -> Iterator[int]:
    """Return the port of a server whose certificate is for ``ENDPOINT`` and signed by ``authority``."""
    if not Path(PGBOUNCER).exists() and "CI" not in os.environ:
        pytest.skip("PgBouncer is not installed: apt-get install pgbouncer")
    with pgbouncer(private_dir("tls"), postgres_server, authority.issue_cert(ENDPOINT)) as listening:
        yield listening


@pytest.fixture(scope="module")
def roots(authority: CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the root certificates of a Lambda bundle and the authority."""
    folder = tmp_path_factory.mktemp("roots")
    write_database_certificates(folder)
    authority.cert_pem.write_to_path(folder / "database.pem", append=True)
    return folder / "database.pem"


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def url(port: int, roots: Path | str, *, host: str = ENDPOINT, user: str = "vectorforge_app") -> str:
    """Return the URL in a function's settings; hostaddr replaces name resolution."""
    query = f"hostaddr=127.0.0.1&sslmode=verify-full&sslrootcert={roots}"
    return f"postgresql://{user}@{host}:{port}/vectorforge?{query}"


async def test_trusted_server_accepts_connections(port: int, roots: Path) -> None:
    async with Database(url(port, roots)) as database:
        found = await database.for_tenant("a").fetch_one("SELECT 1 AS n")
        assert found == {"n": 1}
    assert await pending(url(port, roots, user="postgres")) == []


# Threat 25: a plaintext or forged server
async def test_untrusted_server_is_rejected_with_advice(port: int, roots: Path, tmp_path: Path) -> None:
    write_database_certificates(tmp_path)  # Amazon's roots, which did not sign the server's certificate
    for refused, advice in {
        url(port, roots, host="db.example.com"): "another host name",
        url(port, roots, host="127.0.0.1"): "another host name",
        url(port, tmp_path / "database.pem"): "not signed by an authority in the file that sslrootcert",
        url(port, tmp_path / "missing.pem"): "/var/task/certificates",
        url(port, __file__): "cannot be read",
        url(port, "system"): "not signed by an authority in the file",
    }.items():
        with pytest.raises(UntrustedDatabaseError, match=advice) as caught:
            await Database(refused).open()
        assert caught.value.retryable  # once the server is corrected, no restart is necessary
        assert "127.0.0.1" not in caught.value.message
        with pytest.raises(UntrustedDatabaseError, match=advice):
            await pending(refused)


async def test_expired_certificate_is_rejected(
    postgres_server: ObservedPostgres, private_dir: Callable[[str], Path], authority: CA, roots: Path
) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    expired = authority.issue_cert(ENDPOINT, not_after=yesterday)
    with (
        pgbouncer(private_dir("old"), postgres_server, expired) as listening,
        pytest.raises(UntrustedDatabaseError, match="has expired"),
    ):
        await Database(url(listening, roots)).open()


async def test_connection_without_tls_is_rejected(
    postgres_server: ObservedPostgres, private_dir: Callable[[str], Path], port: int, roots: Path
) -> None:
    with (
        pgbouncer(private_dir("plain"), postgres_server, None) as listening,
        pytest.raises(UntrustedDatabaseError, match="sslmode"),
    ):
        await Database(url(listening, roots)).open()
    with pytest.raises(UntrustedDatabaseError, match="sslmode"):
        await Database(make_conninfo(url(port, roots), sslmode="disable")).open()


# A change while a process runs is distinguished from a slow server, immediately.
async def test_changed_server_certificate_is_reported_by_running_process(
    port: int, roots: Path, tmp_path: Path
) -> None:
    file = shutil.copy(roots, tmp_path / "database.pem")
    async with Database(url(port, file), pool_size=2, timeout_s=60) as database:
        tenant = database.for_tenant("a")
        await tenant.fetch_one("SELECT 1")
        async with database.connection() as connection:
            await connection.close()
        CA().cert_pem.write_to_path(file)
        with pytest.raises(UntrustedDatabaseError, match="not signed by an authority"):
            await tenant.fetch_one("SELECT 1")
        shutil.copy(roots, file)
        while not (await database.health()).healthy:  # noqa: ASYNC110 - the database has no events
            await asyncio.sleep(0.1)
        assert await tenant.fetch_one("SELECT 1 AS n") == {"n": 1}


async def test_rejected_role_raises_login_error(port: int, roots: Path) -> None:
    with pytest.raises(DatabaseLoginError, match="refused the role or password") as caught:
        await Database(url(port, roots, user="nobody")).open()
    assert isinstance(caught.value.__cause__, psycopg.OperationalError)
