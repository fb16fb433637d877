"""What a change of an embedding model is, as it is told."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from vectorforge.db.repositories.embedding_space_repo import EmbeddingModel


class SwitchState(StrEnum):
    """How far a change of the model has come."""

    FILLING = "filling"
    """Passages without a vector of the new model are being embedded; the old one answers."""
    READY = "ready"
    """Every passage has vectors of both; the old model answers."""
    SWITCHED = "switched"
    """The new model answers; the vectors of the old one are kept for a rollback."""
    REMOVING = "removing"
    """The vectors that are not used any more are being deleted."""


@dataclass(frozen=True, slots=True)
class EmbeddingSwitch:
    """A change of a collection's embedding model."""

    id: UUID
    state: SwitchState
    other: EmbeddingModel
    """The new model; once switched, the one before."""
    complete: bool
    """Whether every passage has vectors of both models, as far as is known."""
    passages: int
    vectors: int
    """Of the other model; one a passage when all have one."""
    failures: int
    """Attempts to embed that failed since one last succeeded."""
    error_code: str | None
    error_message: str | None
    gate: Mapping[str, Any] | None
    """What the last comparison has shown."""
    created_at: datetime
    switched_at: datetime | None


def switch_of(row: dict[str, Any]) -> EmbeddingSwitch:
    """The change that a row of the statement of its status says; empties the row of what is its model's."""
    model = {name: row.pop(name) for name in EmbeddingModel.__dataclass_fields__}
    state = row.pop("state")
    if state == "open":
        state = SwitchState.READY if row["complete"] else SwitchState.FILLING
    return EmbeddingSwitch(**row, other=EmbeddingModel(**model), state=SwitchState(state))
