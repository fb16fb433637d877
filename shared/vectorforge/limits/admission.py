"""Admission of a request: reserve what it may use of its tenant's limits, settle what it has used.

``LimitGate`` remembers tenants without limits and full minutes, so that most requests need no statement.
"""

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from vectorforge.db.repositories.query_lookup_repo import PiggybackedStatement
from vectorforge.errors import InvalidInputError, LimitExceededError, VectorForgeError, reason_of
from vectorforge.limits.settings import Claim, Limits, LimitState

if TYPE_CHECKING:
    from vectorforge.db.tenant_database import Call, Outcome, TenantDatabase

REMEMBERED_S = 10.0
"""Longest time until a new or raised limit applies in every process."""

_MAX_TENANTS = 10_000


@dataclass(frozen=True, slots=True)
class _Remembered:
    until: float
    refusal: tuple[LimitState, float] | None
    """Refusal and its time; None if the tenant has no limits."""


class LimitGate:
    """Limits of all tenants as known to one process.

    It never admits a request that PostgreSQL would reject, except for a tenant that had no limits up to
    ``REMEMBERED_S`` ago. It rejects one on its own only while the tenant's minute is certainly full.

    Args:
        defaults: Limits of tenants without limits of their own.
        now: Monotonic clock, seconds.
    """

    def __init__(self, defaults: Limits, *, now: Callable[[], float] = time.monotonic) -> None:
        self.defaults = defaults
        self.now = now
        self._tenants: OrderedDict[str, _Remembered] = OrderedDict()

    def is_open(self, tenant_id: str) -> bool:
        """Return True if the tenant is known to have no limits."""
        known = self._known(tenant_id)
        return known is not None and known.refusal is None

    def refusal(self, tenant_id: str) -> LimitState | None:
        """Return the last refusal if any request would get the same, with its times as of now."""
        known = self._known(tenant_id)
        if known is None or known.refusal is None:
            return None
        state, at = known.refusal
        passed_s = self.now() - at
        left_s = (state.retry_after_s or 0.0) - passed_s
        day_reset_s = None if state.day_reset_s is None else state.day_reset_s - passed_s
        return replace(state, retry_after_s=left_s, minute_reset_s=left_s, day_reset_s=day_reset_s)

    def note(self, tenant_id: str, state: LimitState, *, sent_at: float) -> None:
        """Remember an answer of PostgreSQL that makes later statements unnecessary.

        The state's times count from ``sent_at`` on this gate's clock.
        """
        if state.limits.are_none:
            self._remember(tenant_id, _Remembered(self.now() + REMEMBERED_S, None))
        elif state.refused_by == "requests_per_minute" and state.retry_after_s is not None:
            until = sent_at + min(state.retry_after_s, REMEMBERED_S)
            self._remember(tenant_id, _Remembered(until, (state, sent_at)))

    def _known(self, tenant_id: str) -> _Remembered | None:
        known = self._tenants.get(tenant_id)
        return known if known is not None and known.until > self.now() else None

    def _remember(self, tenant_id: str, known: _Remembered) -> None:
        self._tenants[tenant_id] = known
        self._tenants.move_to_end(tenant_id)
        if len(self._tenants) > _MAX_TENANTS:
            self._tenants.popitem(last=False)


logger = logging.getLogger(__name__)

MakeClaim = Callable[[], Claim]
"""Computes a request's claim; called only if the tenant may have a limit."""

_RESERVE = """
SELECT * FROM vectorforge.reserve(
    %(tenant_id)s, %(id)s, %(requests)s, %(is_stream)s, %(tokens)s, %(cost_usd)s::float8::numeric,
    make_interval(secs => %(hold_s)s), %(default_requests)s, %(default_tokens)s, %(default_cost_usd)s,
    %(default_streams)s
)
"""
_SETTLE = "SELECT vectorforge.settle(%s, %s, %s, %s::float8::numeric)"
_RELEASE_TIMEOUT_S = 1.0
_WORDS = {
    "requests_per_minute": "requests a minute",
    "tokens_per_day": "tokens a day",
    "cost_per_month_usd": "US dollars a month",
    "concurrent_streams": "streams at a time",
}


class Admission:
    """Admission of one request: the first call reserves, ``end`` settles; other calls do nothing.

    Args:
        request_id: Id made by this server, which identifies the reservation.
        hold_s: Lifetime of an unsettled reservation, longer than a request may run.
    """

    def __init__(self, db: "TenantDatabase", gate: LimitGate, request_id: UUID, *, hold_s: float) -> None:
        self._db = db
        self._gate = gate
        self._request_id = request_id
        self._hold_s = hold_s
        self._claim: Claim | None = None
        self._used = (0, 0.0)
        self._is_sent = False
        """True once the statement was made: it may have been committed even if its outcome was lost."""
        self._is_settled = False
        self.state: LimitState | None = None
        """Answer of PostgreSQL; None without a request to it, or if the tenant has no limits."""

    def piggyback(self, make_claim: MakeClaim) -> PiggybackedStatement | None:
        """Return the reservation to send with other statements of the tenant; None if none is needed.

        Raises:
            LimitExceededError: The request is certain to be rejected.
        """
        if self._claim is not None or self._gate.is_open(self._db.tenant_id):
            return None
        refusal = None if self._is_sent else self._gate.refusal(self._db.tenant_id)
        if refusal is not None:
            self.state = refusal
            raise _refused(refusal, Claim())
        self._is_sent = True
        claim, sent_at = make_claim(), self._gate.now()
        return PiggybackedStatement(self.call(claim), partial(self.note, claim, sent_at=sent_at))

    async def admit(self, make_claim: MakeClaim = Claim) -> None:
        """Reserve in a transaction of its own, unless the request has been admitted.

        Raises:
            LimitExceededError: A limit is reached.
            InvalidInputError: The request claims more than a limit allows in its whole period.
            DatabaseError: The reservation failed.
        """
        piggyback = self.piggyback(make_claim)
        if piggyback is not None:
            (outcome,) = await self._db.run([piggyback.call], repeatable=True)
            piggyback.note(outcome)

    def call(self, claim: Claim) -> "Call":
        """Return the statement that reserves. With the same request id it may be run twice."""
        defaults = self._gate.defaults
        return _RESERVE, {
            "id": self._request_id,
            "requests": claim.requests,
            "is_stream": claim.is_stream,
            "tokens": claim.tokens,
            "cost_usd": claim.cost_usd,
            "hold_s": self._hold_s,
            "default_requests": defaults.requests_per_minute,
            "default_tokens": defaults.tokens_per_day,
            "default_cost_usd": defaults.cost_per_month_usd,
            "default_streams": defaults.concurrent_streams,
        }

    def note(self, claim: Claim, outcome: "Outcome", *, sent_at: float) -> None:
        """Note the outcome of ``call``; raises as ``admit``."""
        state = LimitState.of_row(outcome[0][0])
        self._gate.note(self._db.tenant_id, state, sent_at=sent_at)
        if state.limits.are_none:
            self._claim = Claim()
            return
        self.state = state
        if state.refused_by is not None:
            raise _refused(state, claim)
        self._claim = claim

    def settling(self, tokens: int, cost_usd: float | None) -> "list[Call]":
        """Note the use and return the statement that settles it; an unknown cost (None) counts as nothing."""
        if self._claim is None or not self._claim.holds or self._is_settled:
            return []
        self._used = (tokens, cost_usd or 0.0)
        return [self.settlement(*self._used)]

    def confirm(self) -> None:
        """Note that the statement of ``settling`` was committed."""
        self._is_settled = True

    async def end(self) -> None:
        """Settle at the end of the request, if that is left to do. Raises nothing but a cancellation."""
        if self._claim is None or not self._claim.holds or self._is_settled:
            return
        try:
            async with asyncio.timeout(_RELEASE_TIMEOUT_S):
                await self._db.execute(*self.settlement(*self._used), repeatable=True)
            self._is_settled = True
        except (VectorForgeError, TimeoutError) as exc:
            reason = reason_of(exc)
            logger.warning("The use of a request was not settled; its reservation expires: %s", reason)

    def settlement(self, tokens: int, cost_usd: float) -> "Call":
        """Return the statement that settles the reservation; it may be run twice."""
        return _SETTLE, (self._db.tenant_id, self._request_id, tokens, cost_usd)


async def charge(db: "TenantDatabase", gate: LimitGate, tokens: int) -> None:
    """Count tokens of background work before they are used.

    Raises:
        LimitExceededError: They exceed the rest of the day's limit.
        InvalidInputError: They exceed the limit of a whole day.
        DatabaseError: They could not be counted.
    """
    if not tokens or gate.is_open(db.tenant_id):
        return
    claim = Claim(requests=0, tokens=tokens, field="documents")
    admission = Admission(db, gate, uuid4(), hold_s=1.0)
    sent_at = gate.now()
    calls = [admission.call(claim), admission.settlement(tokens, 0.0)]
    admission.note(claim, (await db.run(calls))[0], sent_at=sent_at)


def _refused(state: LimitState, claim: Claim) -> VectorForgeError:
    """Return the error of a refusal, which names the limit."""
    name = state.refused_by or ""
    value = getattr(state.limits, name)
    limit = (
        f"the limit {name} is {value:f}" if name == "cost_per_month_usd" else f"the limit {name} is {value}"
    )
    if state.retry_after_s is None and name != "requests_per_minute":
        claimed = f"{claim.tokens} tokens" if name == "tokens_per_day" else f"{claim.cost_usd:.6f} US dollars"
        return InvalidInputError(
            f"The request may use {claimed}, and {limit}: request less.", field=claim.field
        )
    wait_s = max(1, math.ceil(state.retry_after_s or 1.0))
    return LimitExceededError(
        f"Too many {_WORDS[name]}: {limit}. Try again in {wait_s} s.",
        limit=name,
        value=value,
        retry_after_s=state.retry_after_s,
    )
