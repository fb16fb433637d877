"""A further condition on the rows of a statement, written by those who know what it means."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class SqlCondition:
    """A boolean expression that is never NULL, and its values; ``TRUE`` without any."""

    text: str = "TRUE"
    """In psycopg's ``%(name)s`` style; holds no value of a caller's."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """By names that begin with ``filter_``."""
