"""Types shared by the database modules: statements, their outcomes and tenant ids.

Free of the driver, so that importing them costs a cold start nothing.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from vectorforge.errors import InvalidInputError

if TYPE_CHECKING:
    from psycopg.rows import DictRow

Params: TypeAlias = Sequence[Any] | Mapping[str, Any]
"""Parameters of a statement, by position or by name."""
Call: TypeAlias = tuple[str, Params]
"""A statement with the driver's placeholders, and its parameters."""
Outcome: TypeAlias = "tuple[list[DictRow], int]"
"""The rows of a statement, and the number of rows that it returned or changed."""

MAX_TENANT_BYTES = 128
"""Longest tenant id, in UTF-8 bytes; the tables check the same."""


def checked_tenant(tenant_id: str) -> str:
    """Return the tenant id unchanged if the tables can hold it.

    Raises:
        InvalidInputError: It is empty, too long, or not text that PostgreSQL can hold.
    """
    try:
        size = len(tenant_id.encode())
    except UnicodeEncodeError as exc:
        raise InvalidInputError("tenant_id is not valid text.", field="tenant_id") from exc
    if not 1 <= size <= MAX_TENANT_BYTES or "\0" in tenant_id:
        raise InvalidInputError(
            f"tenant_id must have 1 to {MAX_TENANT_BYTES} bytes and no NUL.", field="tenant_id"
        )
    return tenant_id
