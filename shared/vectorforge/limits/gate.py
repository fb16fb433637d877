"""What a process remembers of tenants' limits, so that most requests need not ask for them."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from vectorforge.limits.settings import Limits, LimitState

REMEMBERED_S = 10.0
"""After so many seconds at most, a limit that somebody has set or raised holds in every process."""

_TENANTS = 10_000
"""Remembered at a time."""


@dataclass(frozen=True, slots=True)
class _Remembered:
    until: float
    refusal: tuple[LimitState, float] | None
    """And when it was; None: the tenant has no limits."""


class LimitGate:
    """The limits of all tenants, as far as one process knows them.

    It never lets a request in that PostgreSQL would refuse, but for a tenant that had no limits at all up to
    ``REMEMBERED_S`` ago. It refuses one by itself only while the minute before it is certainly full.

    Args:
        defaults: Of tenants that have none of their own.
        now: A monotonic clock, seconds.
    """

    def __init__(self, defaults: Limits, *, now: Callable[[], float] = time.monotonic) -> None:
        self.defaults = defaults
        self._now = now
        self._tenants: OrderedDict[str, _Remembered] = OrderedDict()

    def is_open(self, tenant_id: str) -> bool:
        """Whether the tenant is known to have no limits."""
        known = self._known(tenant_id)
        return known is not None and known.refusal is None

    def refusal(self, tenant_id: str) -> LimitState | None:
        """The last refusal, if any request is certain to get the same; its seconds are counted on."""
        known = self._known(tenant_id)
        if known is None or known.refusal is None:
            return None
        state, at = known.refusal
        passed_s = self._now() - at
        left_s = (state.retry_after_s or 0.0) - passed_s
        return LimitState(
            refused_by=state.refused_by,
            retry_after_s=left_s,
            limits=state.limits,
            requests_left=state.requests_left,
            tokens_left=state.tokens_left,
            cost_left_usd=state.cost_left_usd,
            streams_left=state.streams_left,
            minute_reset_s=left_s,
            day_reset_s=None if state.day_reset_s is None else state.day_reset_s - passed_s,
        )

    def note(self, tenant_id: str, state: LimitState, *, asked_at: float) -> None:
        """Remember what PostgreSQL has said, if it spares asking again.

        Args:
            tenant_id: The tenant.
            state: What was said.
            asked_at: When it was asked, on this gate's clock: its seconds count from then at the latest.
        """
        if state.limits.are_none:
            self._remember(tenant_id, _Remembered(self._now() + REMEMBERED_S, None))
        elif state.refused_by == "requests_per_minute" and state.retry_after_s is not None:
            until = asked_at + min(state.retry_after_s, REMEMBERED_S)
            self._remember(tenant_id, _Remembered(until, (state, asked_at)))

    def now(self) -> float:
        """The gate's clock, seconds."""
        return self._now()

    def _known(self, tenant_id: str) -> _Remembered | None:
        known = self._tenants.get(tenant_id)
        return known if known is not None and known.until > self._now() else None

    def _remember(self, tenant_id: str, known: _Remembered) -> None:
        self._tenants[tenant_id] = known
        self._tenants.move_to_end(tenant_id)
        if len(self._tenants) > _TENANTS:
            self._tenants.popitem(last=False)
