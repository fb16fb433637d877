"""Limits of a tenant, what a request claims of them, and what came of it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Limits:
    """What a tenant may use; None: as much as it likes."""

    requests_per_minute: int | None = None
    """In any 60 seconds; counted by the second."""
    tokens_per_day: int | None = None
    """Of language models and of embedded texts, from midnight to midnight in UTC."""
    cost_per_month_usd: Decimal | None = None
    """Of language models whose prices are known, by the calendar month in UTC."""
    concurrent_streams: int | None = None
    """Streamed answers at a time."""

    @property
    def are_none(self) -> bool:
        """Whether nothing is limited."""
        return all(value is None for value in asdict(self).values())


@dataclass(frozen=True, slots=True)
class Claim:
    """The most that a request may use."""

    requests: int = 1
    is_stream: bool = False
    tokens: int = 0
    cost_usd: float = 0.0
    field: str = "max_tokens"
    """Of the request; what it says decides how much this is."""

    @property
    def holds(self) -> bool:
        """Whether something is held until the request ends, and settled then."""
        return self.is_stream or self.tokens > 0 or self.cost_usd > 0


@dataclass(frozen=True, slots=True)
class LimitState:
    """What PostgreSQL says of a claim: ``vectorforge.limit_state``."""

    refused_by: str | None
    """Name of the limit that it does not fit into, as in ``Limits``; None: it was let in."""
    retry_after_s: float | None
    """Seconds until it fits; None: it never does, or was let in."""
    limits: Limits
    requests_left: int | None
    tokens_left: int | None
    cost_left_usd: Decimal | None
    streams_left: int | None
    minute_reset_s: float | None
    """Seconds until one more request fits into the minute."""
    day_reset_s: float | None

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Self:
        """The state of a row of ``vectorforge.reserve``."""
        values = dict(row)
        limits = Limits(**{name: values.pop(name) for name in Limits.__dataclass_fields__})
        return cls(limits=limits, **values)
