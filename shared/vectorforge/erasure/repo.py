"""Erasures of one tenant, whose steps are the database's, and their certificates.

A certificate is JSON without content; its digest is the SHA-256 of its canonical form.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal, NamedTuple
from uuid import UUID

from vectorforge.db.connection import Database
from vectorforge.db.tenant_database import TenantDatabase

Kind = Literal["document", "profile", "collection", "tenant"]
LogPolicy = Literal["text", "rows"]
"""Policy for query log records: empty their texts, or delete their rows."""

FORMAT = "vectorforge.erasure/1"
LEASE_S = 30.0
"""Seconds after its last step before another process may resume an erasure; migrations agree."""

_COLUMNS = """
id, kind, collection_id, document_id, profile_id, logs, requested_by, stage, counts, digests, objects,
begun_at, finished_at, certificate, encode(certificate_sha256, 'hex') AS certificate_sha256
"""
_BEGIN = "SELECT vectorforge.begin_erasure(%s, %s, %s, %s, %s, %s, %s) AS id"
_STEP = "SELECT stage, rows, waits FROM vectorforge.erasure_step(%s, %s)"
_FINISH = "SELECT vectorforge.finish_erasure(%s, %s) AS finished"
_NOTE_FILES = "SELECT vectorforge.note_erased_objects(%s, %s, %s)"
_FIND = f"SELECT {_COLUMNS} FROM vectorforge.erasures WHERE tenant_id = %s AND id = %s"  # noqa: S608 - constants
_LIST = f"""
SELECT {_COLUMNS} FROM vectorforge.erasures WHERE tenant_id = %s ORDER BY begun_at DESC, id DESC LIMIT %s
"""  # noqa: S608 - constants
_NOW = """
SELECT clock_timestamp() AS now, (SELECT max(version) FROM vectorforge.schema_migrations) AS schema_version
"""
_CLAIM = """
SELECT claimed_tenant_id AS tenant_id, claimed_erasure_id AS erasure_id
FROM vectorforge.claim_erasure(make_interval(secs => %s))
"""


class ErasureDatabase(TenantDatabase):
    """A tenant's database for its erasure, accessible while the tenant is closed to others."""

    _enter: ClassVar[str] = "SELECT vectorforge.enter_erasure(%s)"


@dataclass(frozen=True, slots=True)
class Subject:
    """Subject of an erasure; the kind alone means the whole tenant."""

    kind: Kind
    collection_id: UUID | None = None
    """Id of a collection, or of a profile's collection."""
    document_id: UUID | None = None
    profile_id: int | None = None


@dataclass(frozen=True, slots=True)
class Erasure:
    """An erasure, as far as it is."""

    id: UUID
    kind: Kind
    collection_id: UUID | None
    document_id: UUID | None
    profile_id: int | None
    logs: LogPolicy
    requested_by: str
    stage: str
    """waiting | jobs | documents | collection | caches | logs | conversations | rows | objects | done"""
    counts: Mapping[str, int]
    """Number of deleted rows by table."""
    digests: Mapping[str, str]
    """XOR of the SHA-256 of all deleted ids by table, as 256 binary digits."""
    objects: Sequence[str]
    """Keys of uploaded files that are still to be deleted, or prefixes of keys, which end with a slash."""
    begun_at: datetime
    finished_at: datetime | None
    certificate: str | None
    """Canonical JSON; None until it is done."""
    certificate_sha256: str | None

    @property
    def is_done(self) -> bool:
        """True if the erasure is complete."""
        return self.stage == "done"


class ErasureStep(NamedTuple):
    """Result of a step."""

    stage: str
    """Stage of the next step."""
    rows: int
    waits: bool
    """The step is blocked by other work."""


class ErasureRepository:
    """The erasures of one tenant.

    Args:
        db: Database of the tenant, as the role of the app or the eraser.
    """

    def __init__(self, db: ErasureDatabase) -> None:
        self._db = db

    @property
    def tenant_id(self) -> str:
        """The tenant."""
        return self._db.tenant_id

    async def begin(
        self, new_id: UUID, subject: Subject, *, logs: LogPolicy, requested_by: str
    ) -> UUID | None:
        """Begin an erasure, or join one of the same subject; return its id, or None without such a subject.

        Args:
            new_id: Id of the erasure if it is a new one.
            subject: Subject of the erasure.
            logs: Policy for query log records that used it; all records of an erased tenant are deleted.
            requested_by: Requester in the certificate, at most 200 characters.
        """
        named = (subject.collection_id, subject.document_id, subject.profile_id)
        row = await self._db.fetch_one(_BEGIN, (new_id, subject.kind, *named, logs, requested_by))
        return row["id"] if row else None

    async def step(self, erasure_id: UUID, most: int) -> ErasureStep:
        """Delete at most 1 to 10,000 rows of a table, or all of the largest document, in a transaction."""
        (row,) = await self._db.fetch_all(_STEP, (erasure_id, most))
        return ErasureStep(**row)

    async def note_files(self, erasure_id: UUID, keys: Sequence[str], deleted: int) -> None:
        """Note that these keys and prefixes are done, and how many files they were."""
        await self._db.execute(_NOTE_FILES, (erasure_id, list(keys), deleted))

    async def finish(self, erasure_id: UUID, certificate: str) -> bool:
        """Finish an erasure in stage ``objects``; return False if another process has."""
        row = await self._db.fetch_one(_FINISH, (erasure_id, certificate))
        return bool(row and row["finished"])

    async def now(self) -> tuple[datetime, int]:
        """Return the database's time, and the version of its schema."""
        (row,) = await self._db.fetch_all(_NOW)
        return row["now"], row["schema_version"]

    async def find_by_id(self, erasure_id: UUID) -> Erasure | None:
        """Return the erasure, or None."""
        row = await self._db.fetch_one(_FIND, (self._db.tenant_id, erasure_id))
        return Erasure(**row) if row else None

    async def list(self, limit: int = 50) -> Sequence[Erasure]:
        """Return the newest erasures, newest first, at most ``limit``."""
        return [Erasure(**row) for row in await self._db.fetch_all(_LIST, (self._db.tenant_id, limit))]


async def claim_erasure(database: Database) -> tuple[str, UUID] | None:
    """Claim an idle erasure of any tenant; return its tenant and id, or None."""
    row = await database.fetch_untenanted(_CLAIM, (LEASE_S,))
    return (row["tenant_id"], row["erasure_id"]) if row else None


def canonical(certificate: Mapping[str, Any]) -> str:
    """Return the canonical text of a certificate: sorted keys, no blanks, only necessary escapes.

    For certificates, whose numbers are all whole, that is RFC 8785 (JSON Canonicalization Scheme).
    """
    return json.dumps(certificate, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def sha256_of(certificate: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the canonical form, in hex."""
    return hashlib.sha256(canonical(certificate).encode()).hexdigest()


def make_certificate(
    erasure: Erasure,
    tenant_id: str,
    *,
    finished_at: datetime,
    schema_version: int,
    not_reached: Sequence[str],
) -> str:
    """Return the certificate of an erasure that is done, in its canonical form.

    Args:
        erasure: In its last stage.
        tenant_id: Tenant of the data.
        finished_at: On the database's clock.
        schema_version: Schema version of the database, which defines its tables.
        not_reached: Places that may hold copies, and which VectorForge cannot erase.
    """
    named = {
        "collection_id": erasure.collection_id and str(erasure.collection_id),
        "document_id": erasure.document_id and str(erasure.document_id),
        "profile_id": erasure.profile_id,
    }
    certificate = {
        "format": FORMAT,
        "id": str(erasure.id),
        "tenant": tenant_id,
        "kind": erasure.kind,
        **{name: value for name, value in named.items() if value is not None},
        "requested_by": erasure.requested_by,
        "begun_at": erasure.begun_at.isoformat(),
        "finished_at": finished_at.isoformat(),
        "schema_version": schema_version,
        "logs": "rows" if erasure.kind == "tenant" else erasure.logs,
        "erased": {name: count for name, count in sorted(erasure.counts.items()) if count},
        "ids_sha256_xor": {name: f"{int(bits, 2):064x}" for name, bits in sorted(erasure.digests.items())},
        "not_reached": list(not_reached),
    }
    return canonical(certificate)
