"""Bodies of ``/v1/erasures``, and of what deletes documents, profiles, collections and tenants."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Self
from uuid import UUID

from pydantic import BaseModel, Field

from vectorforge.db.repositories.erasure_repo import Erasure, Kind


class ErasureBody(BaseModel):
    """An erasure, and at its end what proves it."""

    id: UUID
    kind: Kind
    status: Literal["running", "done"]
    stage: str = Field(description="What is being done: waiting, jobs, documents and so on, done.")
    erased: Mapping[str, int] = Field(
        description="Rows that have gone, by table; and texts that were emptied."
    )
    requested_by: str = Field(description="Id of the credential that asked for it.")
    begun_at: datetime
    finished_at: datetime | None
    certificate: Mapping[str, Any] | None = Field(
        description="What was erased, without content; null until it is done."
    )
    sha256: str | None = Field(
        description="Of the certificate in its canonical form (RFC 8785), in hex; null until it is done."
    )

    @classmethod
    def of(cls, erasure: Erasure) -> Self:
        """The body for an erasure."""
        return cls(
            id=erasure.id,
            kind=erasure.kind,
            status="done" if erasure.is_done else "running",
            stage=erasure.stage,
            erased=erasure.counts,
            requested_by=erasure.requested_by,
            begun_at=erasure.begun_at,
            finished_at=erasure.finished_at,
            certificate=json.loads(erasure.certificate) if erasure.certificate else None,
            sha256=erasure.certificate_sha256,
        )


class ErasureList(BaseModel):
    """Erasures, newest first."""

    erasures: Sequence[ErasureBody]
