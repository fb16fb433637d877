"""What a tenant may be called."""

from vectorforge.errors import InvalidInputError

MAX_TENANT_BYTES = 128
"""Longest tenant id, in UTF-8 bytes; the tables check the same."""


def checked_tenant(tenant_id: str) -> str:
    """The same tenant id, if the tables can hold it.

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
