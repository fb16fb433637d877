"""Bodies of ``/v1/keys``."""

from datetime import date, datetime
from typing import Self

from pydantic import BaseModel, Field

from vectorforge.api.schemas.base import RequestBody
from vectorforge.db.repositories.api_key_repo import (
    DEFAULT_OVERLAP,
    MAX_KEY_NAME_CHARS,
    MAX_LIFETIME,
    MAX_OVERLAP,
    ApiKey,
    NewApiKey,
)
from vectorforge.principal import Scope

_HOUR_S = 3600


class KeyRequest(RequestBody):
    """A key to be made."""

    name: str = Field(min_length=1, max_length=MAX_KEY_NAME_CHARS, description="What it is for.")
    scope: Scope = Field(
        default=Scope.READ,
        description="read: ask, search; write: also change documents; admin: also keys, logs, costs.",
    )
    expires_in_days: int | None = Field(
        default=None, ge=1, le=MAX_LIFETIME.days, description="Without it the key does not end by itself."
    )


class RotationRequest(RequestBody):
    """For how long the old key is still good."""

    overlap_hours: float = Field(
        default=DEFAULT_OVERLAP.total_seconds() / _HOUR_S, ge=0, le=MAX_OVERLAP.total_seconds() / _HOUR_S
    )


class KeyBody(BaseModel):
    """What is known of a key."""

    id: str
    name: str
    scope: Scope
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    successor: str | None = Field(description="Id of the key that takes its place, once it was rotated.")
    last_used_on: date | None = Field(description="In UTC.")

    @classmethod
    def of(cls, key: ApiKey) -> Self:
        """The body for the key."""
        return cls(
            id=key.id,
            name=key.name,
            scope=key.scope,
            created_at=key.created_at,
            expires_at=key.expires_at,
            revoked_at=key.revoked_at,
            successor=key.successor,
            last_used_on=key.last_used_on,
        )


class NewKeyBody(KeyBody):
    """A key that was just made."""

    key: str = Field(description="The key itself. It is shown this once.")

    @classmethod
    def of_new(cls, made: NewApiKey) -> Self:
        """The body for the key, with the key."""
        return cls(**KeyBody.of(made.key).model_dump(), key=made.secret)


class KeyList(BaseModel):
    """A page of the keys, the newest first."""

    keys: list[KeyBody]
    limit: int
    offset: int
