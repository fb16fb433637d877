"""RDS as a client sees it: the endpoint requires TLS, and roles with ``rds_iam`` log in with IAM tokens."""

import asyncio
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import TYPE_CHECKING, Any, Self

from psycopg.conninfo import conninfo_to_dict

from tests.support.aws.fake_aws import REGION
from tests.support.aws.iam_token import AwsKeys, IamToken

if TYPE_CHECKING:
    from trustme import CA

ENDPOINT = f"vectorforge.proxy-abcdefghijkl.{REGION}.rds.amazonaws.com"

_TLS_REQUEST, _GSS_REQUEST, _CANCEL_REQUEST = 80877103, 80877104, 80877102
_ASK_FOR_PASSWORD = b"R" + struct.pack("!ii", 8, 3)

# As pg_hba.conf understands "+rds_iam": any membership counts, of whatever kind and through whatever roles.
# RDS lets rds_superuser grant rds_iam without having it, which PostgreSQL cannot express: not emulated.
_HAS_RDS_IAM = """
WITH RECURSIVE held (oid) AS (
    SELECT oid FROM pg_roles WHERE rolname = %s
    UNION
    SELECT m.roleid FROM held JOIN pg_auth_members m ON m.member = held.oid
    WHERE m.member <> coalesce((SELECT oid FROM pg_roles WHERE rolname = 'rds_superuser'), 0)
)
SELECT EXISTS (SELECT FROM held JOIN pg_roles r ON r.oid = held.oid WHERE r.rolname = 'rds_iam')
"""


@dataclass(frozen=True, slots=True)
class Login:
    """One attempt to log in."""

    user: str
    password: str
    refused: str | None
    """Reason for the rejection, or None if the login succeeded."""


@dataclass
class FakeRds:
    """Listens on 127.0.0.1 as a context manager, and relays accepted logins to the real server.

    Args:
        superuser_url: Connection string of the real server, over a Unix socket that needs no password.
        authority: Signs the endpoint's certificate.
        keys: Credentials valid in IAM, by access key; may change while it runs.
        passwords: Passwords of roles without ``rds_iam``; may change while it runs.
    """

    superuser_url: str
    authority: "CA"
    keys: dict[str, AwsKeys] = field(default_factory=dict)
    passwords: dict[str, str] = field(default_factory=dict)
    logins: list[Login] = field(default_factory=list)
    """Logins in order of arrival."""
    refuse_next: int = 0
    """Number of next logins to reject regardless of their credentials."""
    port: int = 0
    """Set once it listens."""

    async def __aenter__(self) -> Self:
        tls = SSLContext(PROTOCOL_TLS_SERVER)
        self.authority.issue_cert(ENDPOINT).configure_cert(tls)
        self._tls = tls
        self._connections: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def url(self, root: Path, *, user: str = "", database: str | None = None, **parameters: str) -> str:
        """The endpoint's URL for a role, as a stack's settings hold it.

        Args:
            root: File of root certificates.
            user: Role; omitted when empty.
            database: Default: that of ``superuser_url``.
            parameters: Further libpq parameters; they override the usual ones.
        """
        database = database or str(conninfo_to_dict(self.superuser_url)["dbname"])
        usual = {"hostaddr": "127.0.0.1", "sslmode": "verify-full", "sslrootcert": str(root)}
        query = "&".join(f"{name}={value}" for name, value in {**usual, **parameters}.items())
        return f"postgresql://{user + '@' if user else ''}{ENDPOINT}:{self.port}/{database}?{query}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        try:
            await self._talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, OSError):
            pass  # the client disconnected, as those that do not trust the certificate do
        finally:
            self._connections.discard(connection)
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        encrypted = False
        while True:
            packet = await _packet(reader)
            code = struct.unpack("!i", packet[:4])[0]
            if code == _GSS_REQUEST:
                writer.write(b"N")
            elif code == _TLS_REQUEST:
                writer.write(b"S")
                await writer.start_tls(self._tls)
                encrypted = True
            else:
                break
        if code == _CANCEL_REQUEST:
            await self._pass_on(packet, reader, writer)
            return
        words = packet[4:].rstrip(b"\0").split(b"\0")
        user = dict(zip(words[::2], words[1::2], strict=True))[b"user"].decode()
        if not encrypted:
            writer.write(_fatal("28000", f'no pg_hba.conf entry for user "{user}", no encryption'))
            return
        writer.write(_ASK_FOR_PASSWORD)
        await reader.readexactly(1)
        password = (await _packet(reader)).rstrip(b"\0").decode()
        if (failure := await self._check(user, password)) is not None:
            writer.write(failure)
            await writer.drain()
            return
        await self._pass_on(packet, reader, writer)

    async def _check(self, user: str, password: str) -> bytes | None:
        with_token = await self._has_rds_iam(user)
        if self.refuse_next > 0:
            self.refuse_next -= 1
            fault: str | None = "refused on purpose"
        elif with_token:
            fault = IamToken.of(password).fault(
                address=f"{ENDPOINT}:{self.port}", user=user, region=REGION, keys=self.keys
            )
        else:
            fault = None if self.passwords.get(user) == password else "wrong password"
        self.logins.append(Login(user, password, fault))
        if fault is None:
            return None
        if with_token:
            return _fatal("28000", f'PAM authentication failed for user "{user}"')
        return _fatal("28P01", f'password authentication failed for user "{user}"')

    async def _has_rds_iam(self, user: str) -> bool:
        import psycopg

        connection: psycopg.AsyncConnection[Any]
        async with await psycopg.AsyncConnection.connect(self.superuser_url) as connection:
            row = await (await connection.execute(_HAS_RDS_IAM.encode(), [user])).fetchone()
        return bool(row and row[0])

    async def _pass_on(
        self, packet: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        directory = conninfo_to_dict(self.superuser_url)["host"]
        up_reader, up_writer = await asyncio.open_unix_connection(f"{directory}/.s.PGSQL.5432")
        up_writer.write(struct.pack("!i", len(packet) + 4) + packet)
        try:
            await asyncio.gather(_copy(reader, up_writer), _copy(up_reader, writer))
        finally:
            up_writer.close()


async def _packet(reader: asyncio.StreamReader) -> bytes:
    """Read the bytes after a length that includes itself."""
    (length,) = struct.unpack("!i", await reader.readexactly(4))
    return await reader.readexactly(length - 4)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


def _fatal(sqlstate: str, message: str) -> bytes:
    fields = {"S": "FATAL", "V": "FATAL", "C": sqlstate, "M": message}
    body = b"".join(name.encode() + text.encode() + b"\0" for name, text in fields.items()) + b"\0"
    return b"E" + struct.pack("!i", len(body) + 4) + body


def keys_in(environment: Mapping[str, str]) -> dict[str, AwsKeys]:
    """Return the credentials that a process with these environment variables signs with."""
    keys = AwsKeys(environment["AWS_SECRET_ACCESS_KEY"], environment.get("AWS_SESSION_TOKEN"))
    return {environment["AWS_ACCESS_KEY_ID"]: keys}
