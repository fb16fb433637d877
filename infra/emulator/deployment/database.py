"""Embedded PostgreSQL set up as RDS, behind PgBouncer with TLS in place of RDS Proxy."""

import os
import pwd
import shutil
import socket
import time
from pathlib import Path

from infra.emulator.deployment.background import BackgroundProcesses
from infra.emulator.deployment.certificates import Certificates, make_certificates
from vectorforge.db.login import LOGIN_ROLES
from vectorforge.errors import ConfigurationError, DatabaseUnavailableError
from vectorforge.local.account import account_for
from vectorforge.local.postgres import DATABASE, EmbeddedPostgres

OWNER = "vectorforge_owner"
"""RDS's master user, as infra/data/database.py names it: no superuser, but may make roles."""

_PGBOUNCER = "pgbouncer"
_SERVER_CONNECTIONS = 20
_CLIENT_CONNECTIONS = 500
_START_TIMEOUT_S = 10.0
_AS_RDS = f"""
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{OWNER}') THEN
        CREATE ROLE {OWNER} LOGIN CREATEROLE CREATEDB;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'rds_iam') THEN
        CREATE ROLE rds_iam NOLOGIN;
        GRANT rds_iam TO {OWNER} WITH ADMIN OPTION, INHERIT FALSE;
    END IF;
END $$;
ALTER DATABASE {DATABASE} OWNER TO {OWNER};
CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public;
"""  # noqa: S608 - our own names
"""RDS lets its master user create the extension; elsewhere that needs a superuser."""


def start_database(folder: Path) -> tuple[EmbeddedPostgres, Certificates]:
    """Start PostgreSQL, which outlives this process, and create the certificates of its proxy.

    Args:
        folder: Folder of the deployment.

    Raises:
        ConfigurationError: The folder cannot hold a database.
        DatabaseUnavailableError: It does not start.
    """
    import psycopg

    server = embedded(folder)
    server.start()
    with psycopg.connect(server.migrator_url, autocommit=True) as connection:
        connection.execute(_AS_RDS.encode())
    certificates = folder / "certificates"
    certificates.mkdir(exist_ok=True)
    certificates.chmod(0o755)
    return server, make_certificates(certificates, account_for(server.data_dir))


def embedded(folder: Path) -> EmbeddedPostgres:
    """Return the server of a deployment, started or not."""
    return EmbeddedPostgres(folder / "postgres")


def start_proxy(
    processes: BackgroundProcesses,
    folder: Path,
    server: EmbeddedPostgres,
    certificates: Certificates,
    port: int,
) -> None:
    """Start PgBouncer before the server, unless it is running.

    Transaction mode with TLS only, as RDS Proxy; session mode for the owner, who reaches RDS directly on AWS.
    Passwords are not checked: the functions' tokens come from fake credentials.

    Args:
        processes: That it becomes one of.
        folder: Folder of the deployment.
        server: Is running.
        certificates: For 127.0.0.1.
        port: Free port of 127.0.0.1.

    Raises:
        ConfigurationError: It is not installed.
        DatabaseUnavailableError: It does not start.
    """
    program = shutil.which(_PGBOUNCER) or shutil.which(_PGBOUNCER, path="/usr/sbin")
    if program is None:
        raise ConfigurationError("PgBouncer is required: apt-get install pgbouncer")
    configuration = _write_configuration(folder, server, certificates, port)
    command = [program, str(configuration)]
    if os.geteuid() == 0:
        command[1:1] = ["-u", pwd.getpwuid(server.data_dir.stat().st_uid).pw_name]
    log = folder / "logs" / "pgbouncer.log"
    processes.start(_PGBOUNCER, command, log=log)
    give_up_at = time.monotonic() + _START_TIMEOUT_S
    while not _listens(port):
        if time.monotonic() > give_up_at or not processes.is_running(_PGBOUNCER):
            raise DatabaseUnavailableError(f"PgBouncer failed to start; see {log}.")
        time.sleep(0.05)


def _write_configuration(
    folder: Path, server: EmbeddedPostgres, certificates: Certificates, port: int
) -> Path:
    configuration, users = folder / "pgbouncer.ini", folder / "pgbouncer-users.txt"
    users.write_text("".join(f'"{role}" ""\n' for role in (*LOGIN_ROLES, OWNER)))
    configuration.write_text(_configuration(server, certificates, users, port))
    for file in (configuration, users):
        file.chmod(0o644)  # for the account that it runs as
    return configuration


def _configuration(server: EmbeddedPostgres, certificates: Certificates, users: Path, port: int) -> str:
    """https://www.pgbouncer.org/config.html."""
    from psycopg.conninfo import conninfo_to_dict

    found = conninfo_to_dict(server.migrator_url)
    lines = [
        "[databases]",
        f"* = host={found['host']} port={found['port']}",
        "[users]",
        f"{OWNER} = pool_mode=session",
        "[pgbouncer]",
        "pool_mode = transaction",
        "auth_type = trust",
        f"auth_file = {users}",
        "listen_addr = 127.0.0.1",
        f"listen_port = {port}",
        "unix_socket_dir =",
        "client_tls_sslmode = require",
        f"client_tls_key_file = {certificates.key}",
        f"client_tls_cert_file = {certificates.certificate}",
        f"default_pool_size = {_SERVER_CONNECTIONS}",
        f"max_client_conn = {_CLIENT_CONNECTIONS}",
    ]
    return "\n".join(lines) + "\n"


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
