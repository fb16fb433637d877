"""Limits of a tenant, the claim of a request, and the answer of the database; reading and changing limits."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Self

from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a tenant; None: unlimited."""

    requests_per_minute: int | None = None
    """Requests in any 60 seconds; counted by the second."""
    tokens_per_day: int | None = None
    """Tokens of language models and of embedded texts, from midnight to midnight in UTC."""
    cost_per_month_usd: Decimal | None = None
    """Cost of language models with known prices, by calendar month in UTC."""
    concurrent_streams: int | None = None
    """Streamed answers at the same time."""

    @property
    def are_none(self) -> bool:
        """True if nothing is limited."""
        return all(value is None for value in asdict(self).values())


@dataclass(frozen=True, slots=True)
class Claim:
    """Upper bound of a request's use."""

    requests: int = 1
    is_stream: bool = False
    tokens: int = 0
    cost_usd: float = 0.0
    field: str = "max_tokens"
    """Field of the request that decides the size of the claim."""

    @property
    def holds(self) -> bool:
        """True if something is reserved until the request ends."""
        return self.is_stream or self.tokens > 0 or self.cost_usd > 0


@dataclass(frozen=True, slots=True)
class LimitState:
    """Answer of PostgreSQL to a claim: ``vectorforge.limit_state``."""

    refused_by: str | None
    """Name of the exceeded limit, as in ``Limits``; None if the request was admitted."""
    retry_after_s: float | None
    """Seconds until the claim fits; None if it never does, or was admitted."""
    limits: Limits
    requests_left: int | None
    tokens_left: int | None
    minute_reset_s: float | None
    """Seconds until one more request fits into the minute."""
    day_reset_s: float | None

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Self:
        """Return the state of a row of ``vectorforge.reserve``."""
        limits = Limits(**{name: row[name] for name in Limits.__dataclass_fields__})
        own = cls.__dataclass_fields__.keys() - {"limits"}
        return cls(limits=limits, **{name: row[name] for name in own})


LARGEST: Mapping[str, int] = {
    "requests_per_minute": 1_000_000,
    "tokens_per_day": 10**15,
    "cost_per_month_usd": 10**10 - 1,
    "concurrent_streams": 1_000_000,
}
"""Largest value of each limit, by the size of its column."""
_SMALLEST_COST_USD = Decimal("0.01")

_COLUMNS = ", ".join(LARGEST)
_VALUES = ", ".join(f"%({name})s" for name in LARGEST)
_OWN = f"SELECT {_COLUMNS} FROM vectorforge.tenants WHERE tenant_id = %(tenant_id)s"  # noqa: S608 - constants
_SET = f"""
INSERT INTO vectorforge.tenants (tenant_id, {_COLUMNS}) VALUES (%(tenant_id)s, {_VALUES})
ON CONFLICT (tenant_id) DO UPDATE SET ({_COLUMNS}, updated_at) = ({_VALUES}, now())
"""  # noqa: S608 - constants
# As vectorforge.reserve counts, without its lock.
_USAGE = """
WITH moment AS (
    SELECT floor(extract(epoch FROM now()))::bigint AS second, (now() AT TIME ZONE 'UTC')::date AS day,
        date_trunc('month', now() AT TIME ZONE 'UTC')::date AS month
), held AS (
    SELECT coalesce(sum(r.tokens) FILTER (WHERE r.day = m.day), 0) AS tokens,
        coalesce(sum(r.cost_usd) FILTER (WHERE r.day >= m.month), 0) AS cost_usd,
        count(*) FILTER (WHERE r.is_stream AND NOT r.settled) AS streams
    FROM (
        SELECT *, (created_at AT TIME ZONE 'UTC')::date AS day FROM vectorforge.limit_reservations
        WHERE tenant_id = %(tenant_id)s AND (settled OR expires_at > now())
    ) AS r, moment AS m
), counted AS (
    SELECT c.*, (
        SELECT sum(n) FROM unnest(c.second_counts) WITH ORDINALITY AS u(n, place)
        WHERE c.last_second - 61 + place > (SELECT second FROM moment) - 61
    ) AS requests
    FROM vectorforge.limit_counters AS c WHERE c.tenant_id = %(tenant_id)s
)
SELECT coalesce(c.requests, 0)::int AS requests,
    (h.tokens + coalesce(c.day_tokens * (c.day = m.day)::int, 0))::bigint AS tokens,
    h.cost_usd + coalesce(c.month_cost_usd * (c.month = m.month)::int, 0) AS cost_usd,
    h.streams::int AS streams
FROM moment AS m CROSS JOIN held AS h LEFT JOIN counted AS c ON true
"""


@dataclass(frozen=True, slots=True)
class LimitUsage:
    """Use of a tenant, with the reservations of its open requests; counted only while it has a limit."""

    requests: int
    """Requests of the last minute."""
    tokens: int
    """Tokens of today, in UTC."""
    cost_usd: Decimal
    """Cost of this month, in UTC."""
    streams: int
    """Streams open now."""


class TenantLimits:
    """Limits of one tenant in the database."""

    def __init__(self, db: TenantDatabase) -> None:
        self._db = db

    async def own(self) -> Limits:
        """Return the tenant's own limits; None stands for the server's default."""
        row = await self._db.fetch_one(_OWN, {}, repeatable=True)
        return Limits(**row) if row else Limits()

    async def usage(self) -> LimitUsage:
        """Return the tenant's use."""
        row = await self._db.fetch_one(_USAGE, {}, repeatable=True)
        return LimitUsage(**row or {})

    async def change(self, limits: Limits) -> None:
        """Replace the tenant's own limits.

        Processes that know the tenant as unlimited apply them within ``admission.REMEMBERED_S``, others at
        once.

        Raises:
            InvalidInputError: A limit is out of range.
        """
        for name, value in asdict(limits).items():
            smallest = _SMALLEST_COST_USD if name == "cost_per_month_usd" else 1
            if value is not None and not smallest <= value <= LARGEST[name]:
                raise InvalidInputError(f"{name} must be between {smallest} and {LARGEST[name]}.", field=name)
        await self._db.execute(_SET, asdict(limits), repeatable=True)
