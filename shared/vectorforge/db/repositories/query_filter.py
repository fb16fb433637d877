"""A further condition on the rows of a statement, written by those who know what it means.

Which queries of the log are meant: the conditions that the list of queries and the statistics share.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class SqlCondition:
    """A boolean expression that is never NULL, and its values; ``TRUE`` without any."""

    text: str = "TRUE"
    """In psycopg's ``%(name)s`` style; holds no value of a caller's."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """By names that begin with ``filter_``."""


# The values are known when a statement without a name is planned, so that conditions without one are dropped:
# https://www.postgresql.org/docs/current/sql-prepare.html (custom plans)
CONDITIONS = """
    tenant_id = %(tenant_id)s
AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s)
AND (%(until)s::timestamptz IS NULL OR created_at < %(until)s)
AND (%(collection_id)s::uuid IS NULL OR collection_id = %(collection_id)s)
AND (%(outcome)s::text IS NULL OR outcome = %(outcome)s)
AND (%(provider)s::text IS NULL OR provider = %(provider)s)
AND (%(model)s::text IS NULL OR model = %(model)s)
AND (%(variant)s::text IS NULL OR variant = %(variant)s)
AND (%(cached)s::boolean IS NULL OR (cached OR outcome = 'cached') = %(cached)s)
AND (%(degraded)s::boolean IS NULL OR (degraded <> '[]') = %(degraded)s)
AND (%(text)s::text IS NULL OR strpos(lower(query_text), lower(%(text)s)) > 0)
"""
"""For a WHERE over ``vectorforge.query_logs``; takes ``QueryFilter.values`` and ``tenant_id``."""


@dataclass(frozen=True, slots=True)
class QueryFilter:
    """Conditions that all hold; None means any."""

    since: datetime | None = None
    """Not before, with a time zone."""
    until: datetime | None = None
    """Before, with a time zone."""
    collection_id: UUID | None = None
    outcome: str | None = None
    provider: str | None = None
    model: str | None = None
    """As logged: the name the vendor answered with."""
    variant: str | None = None
    cached: bool | None = None
    degraded: bool | None = None
    """Filter by degraded answers."""
    text: str | None = None
    """Part of the query, case-insensitive."""

    @property
    def values(self) -> Mapping[str, Any]:
        """Return the parameters of ``CONDITIONS``, without the tenant."""
        return {name: getattr(self, name) for name in QueryFilter.__dataclass_fields__}
