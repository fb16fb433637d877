"""Certificate of an erasure: JSON without content, and the SHA-256 of its canonical form."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from vectorforge.erasure.repo import Erasure

FORMAT = "vectorforge.erasure/1"


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


def digest_of_ids(ids: Sequence[object]) -> str:
    """Return the XOR of the SHA-256 of ids, in hex, as certificates have it for deleted rows."""
    digest = 0
    for row_id in ids:
        digest ^= int.from_bytes(hashlib.sha256(str(row_id).encode()).digest())
    return f"{digest:064x}"
