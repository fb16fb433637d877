"""API keys of tenants: creation, listing, rotation, revocation and look-up."""

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

from vectorforge.errors import ConflictError, InvalidInputError, NotFoundError
from vectorforge.names import check_name
from vectorforge.types import Scope

if TYPE_CHECKING:
    from psycopg.rows import DictRow

    from vectorforge.db.connection import Database
    from vectorforge.db.tenant_database import TenantDatabase

MAX_KEY_NAME_CHARS = 100
MAX_KEYS = 1000
"""Maximum number of a tenant's keys, including those that expired in the last 90 days."""
MAX_LIFETIME = timedelta(days=3650)
MAX_OVERLAP = timedelta(days=30)
DEFAULT_OVERLAP = timedelta(days=1)

_SECRET_BYTES = 32
_KEY_ID = re.compile(r"[0-9a-f]{16}")
_KEY = re.compile(rf"vf_{_KEY_ID.pattern}_[A-Za-z0-9_-]{{43}}")
_COLUMNS = "id, name, scope, created_at, expires_at, revoked_at, successor, last_used_on"
_IN_USE = "revoked_at IS NULL AND coalesce(expires_at > now(), true)"

_CREATE = f"""
WITH gone AS (
    DELETE FROM vectorforge.api_keys
    WHERE tenant_id = %(tenant_id)s AND coalesce(revoked_at, expires_at) < now() - interval '90 days'
)
INSERT INTO vectorforge.api_keys (tenant_id, id, digest, name, scope, expires_at)
SELECT %(tenant_id)s, %(id)s, %(digest)s, %(name)s, %(scope)s, now() + %(lifetime)s::interval
WHERE (SELECT count(*) FROM vectorforge.api_keys WHERE tenant_id = %(tenant_id)s) < %(limit)s
RETURNING {_COLUMNS}
"""
_LIST = f"""
SELECT {_COLUMNS} FROM vectorforge.api_keys WHERE tenant_id = %s
ORDER BY created_at DESC, id LIMIT %s OFFSET %s
"""
# The row lock lets one of two rotations at a time find the key without a successor.
_ROTATE = f"""
WITH old AS (
    SELECT tenant_id, id, name, scope, expires_at - created_at AS lifetime FROM vectorforge.api_keys
    WHERE tenant_id = %(tenant_id)s AND id = %(old_id)s AND successor IS NULL AND {_IN_USE}
    FOR UPDATE
), ending AS (
    UPDATE vectorforge.api_keys AS k
    SET successor = %(id)s, expires_at = least(k.expires_at, now() + %(overlap)s::interval)
    FROM old WHERE k.tenant_id = old.tenant_id AND k.id = old.id
)
INSERT INTO vectorforge.api_keys (tenant_id, id, digest, name, scope, expires_at)
SELECT tenant_id, %(id)s, %(digest)s, name, scope, now() + lifetime FROM old
RETURNING {_COLUMNS}
"""
_REVOKE = f"""
UPDATE vectorforge.api_keys SET revoked_at = now() WHERE tenant_id = %s AND id = %s AND {_IN_USE}
RETURNING {_COLUMNS}
"""
_FIND = "SELECT tenant_id, id, digest, scope, seconds_left FROM vectorforge.find_api_key(%s)"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key's record, without the secret."""

    id: str
    """16 hex digits; part of the key."""
    name: str
    scope: Scope
    created_at: datetime
    expires_at: datetime | None
    """None: it does not end on its own."""
    revoked_at: datetime | None
    successor: str | None
    """Id of the key that replaces it, after a rotation."""
    last_used_on: date | None
    """In UTC; None: never."""


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """A new key, with its secret."""

    secret: str
    """The key itself, ``vf_<id>_<43 characters>``; it is stored nowhere and cannot be shown again."""
    key: ApiKey

    def __repr__(self) -> str:
        """Without the secret."""
        return f"NewApiKey(secret='**********', key={self.key!r})"


@dataclass(frozen=True, slots=True)
class ActiveApiKey:
    """A key that is in use, found by its digest."""

    tenant_id: str
    id: str
    digest: bytes
    """SHA-256 of the key."""
    scope: Scope
    seconds_left: float | None
    """Until it ends; None: it does not."""


def digest_of(secret: str) -> bytes:
    """Return the stored SHA-256 of a key.

    A slow hash is for passwords; 256 random bits cannot be guessed however fast the hash is
    (https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html).
    """
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def is_issued_key(text: str) -> bool:
    """Return True if the text has the form of an issued key; any other needs no look-up."""
    return _KEY.fullmatch(text) is not None


class ApiKeyRepository:
    """The keys of one tenant."""

    def __init__(self, db: "TenantDatabase") -> None:
        self._db = db

    async def create(self, name: str, scope: Scope, *, lifetime: timedelta | None = None) -> NewApiKey:
        """Make a key; its name has 1 to 100 characters, its lifetime is 1 s to 3,650 days, or None: no end.

        Raises:
            InvalidInputError: The name or the lifetime is out of range, or the name has a control character.
            ConflictError: The tenant has 1,000 keys.
        """
        if not 1 <= len(name) <= MAX_KEY_NAME_CHARS:
            raise InvalidInputError(f"name must have 1 to {MAX_KEY_NAME_CHARS} characters.", field="name")
        check_name(name)
        if lifetime is not None and not timedelta(seconds=1) <= lifetime <= MAX_LIFETIME:
            raise InvalidInputError(
                "expires_in_days must be at most 3,650, and the lifetime at least 1 second.",
                field="expires_in_days",
            )
        secret, values = self._new_key()
        values |= {"name": name, "scope": scope.value, "lifetime": lifetime, "limit": MAX_KEYS}
        row = await self._db.fetch_one(_CREATE, values)
        if row is None:
            raise ConflictError(
                f"The limit of {MAX_KEYS} keys is reached; keys are deleted 90 days after they expire."
            )
        return NewApiKey(secret, _key(row))

    async def list(self, *, limit: int | None = None, offset: int = 0) -> "Sequence[ApiKey]":
        """Return a page of the keys, the newest first, without a limit all; ended ones go after 90 days."""
        rows = await self._db.fetch_all(_LIST, (self._db.tenant_id, limit, offset))
        return [_key(row) for row in rows]

    async def rotate(self, key_id: str, *, overlap: timedelta = DEFAULT_OVERLAP) -> NewApiKey:
        """Create a key that replaces another, with the same name, scope and lifetime.

        The old key remains valid for ``overlap``, 0 to 30 days, and never longer than before.

        Raises:
            InvalidInputError: The overlap is out of range.
            NotFoundError: There is no such key in use, or it was rotated before.
        """
        if not timedelta(0) <= overlap <= MAX_OVERLAP:
            raise InvalidInputError("overlap_hours must be between 0 and 720.", field="overlap_hours")
        secret, values = self._new_key()
        row = await self._db.fetch_one(_ROTATE, {**values, "old_id": _known_form(key_id), "overlap": overlap})
        if row is None:
            raise NotFoundError(
                "No active key with this id can be rotated; it may have been rotated already."
            )
        return NewApiKey(secret, _key(row))

    async def revoke(self, key_id: str) -> ApiKey:
        """Revoke a key now. Running requests continue; later ones are rejected, see ``KeyCheck``.

        Raises:
            NotFoundError: There is no such key in use.
        """
        row = await self._db.fetch_one(_REVOKE, (self._db.tenant_id, _known_form(key_id)))
        if row is None:
            raise NotFoundError("No active key has this id.")
        return _key(row)

    @staticmethod
    def _new_key() -> "tuple[str, dict[str, object]]":
        key_id = secrets.token_hex(8)
        secret = f"vf_{key_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"
        return secret, {"id": key_id, "digest": digest_of(secret)}


async def find_api_key(database: "Database", digest: bytes) -> ActiveApiKey | None:
    """Return the active key of any tenant with this SHA-256, or None.

    It also notes the day on which the key was used.

    Raises:
        DatabaseUnavailableError: The database does not answer.
    """
    row = await database.fetch_untenanted(_FIND, (digest,))
    return None if row is None else ActiveApiKey(**{**row, "scope": Scope(row["scope"])})


def _known_form(key_id: str) -> str:
    """Return the id, or one that no key has instead of a text that PostgreSQL may not hold."""
    return key_id if _KEY_ID.fullmatch(key_id) else ""


def _key(row: "DictRow") -> ApiKey:
    return ApiKey(**{**row, "scope": Scope(row["scope"])})
