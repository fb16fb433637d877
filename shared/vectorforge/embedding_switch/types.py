"""Types of embedding model switches."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from vectorforge.db.repositories.embedding_space_repo import EmbeddingModel


class SwitchState(StrEnum):
    """State of a model switch."""

    FILLING = "filling"
    """Chunks without a vector of the new model are being embedded; the old model is in use."""
    READY = "ready"
    """Every chunk has vectors of both models; the old model is in use."""
    SWITCHED = "switched"
    """The new model is in use; the vectors of the old one remain for a rollback."""
    REMOVING = "removing"
    """The unused vectors are being deleted."""


@dataclass(frozen=True, slots=True)
class EmbeddingSwitch:
    """Switch of a collection's embedding model."""

    id: UUID
    state: SwitchState
    other: EmbeddingModel
    """The new model; once switched, the previous one."""
    complete: bool
    """True if every chunk is known to have vectors of both models."""
    passages: int
    vectors: int
    """Vectors of the other model; one per chunk when complete."""
    failures: int
    """Failed attempts to embed since the last success."""
    error_code: str | None
    error_message: str | None
    gate: Mapping[str, Any] | None
    """Result of the last comparison."""
    created_at: datetime
    switched_at: datetime | None


def switch_of(row: dict[str, Any]) -> EmbeddingSwitch:
    """Return the switch of a status row; removes the model's columns from the row."""
    model = {name: row.pop(name) for name in EmbeddingModel.__dataclass_fields__}
    state = row.pop("state")
    if state == "open":
        state = SwitchState.READY if row["complete"] else SwitchState.FILLING
    return EmbeddingSwitch(**row, other=EmbeddingModel(**model), state=SwitchState(state))
