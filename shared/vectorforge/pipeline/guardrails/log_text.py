"""Policies for texts in the query log, applied before a record leaves the process."""

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias, cast, get_args

from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.errors import VectorForgeError
from vectorforge.threads import off_event_loop

logger = logging.getLogger(__name__)

LogText: TypeAlias = Literal["full", "redacted", "hash", "off"]
"""Texts unchanged; with personal data and keys masked; as SHA-256; omitted."""

_KNOWN_FOR_S = 60.0
"""Time after which a tenant's policy is read again."""
_FAILED_FOR_S = 1.0
_MAX_TENANTS = 10_000


class LogTextSettings(Protocol):
    """Source of a tenant's policy; ``TenantSettingsRepository``."""

    async def log_text(self) -> str | None:
        """Return the tenant's own policy, or None."""
        ...


@dataclass(frozen=True, slots=True)
class _Known:
    policy: LogText
    until: float


class LogTextPolicies:
    """Policies of the tenants that this process has served last.

    Args:
        default: Policy of tenants without one of their own.
        clock: Clock, seconds.
    """

    def __init__(self, default: LogText = "redacted", *, clock: Callable[[], float] = time.monotonic) -> None:
        self.default = default
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def find(self, tenant_id: str) -> LogText | None:
        """Return the tenant's policy if it is known and fresh."""
        known = self._known.get(tenant_id)
        return known.policy if known is not None and known.until > self._clock() else None

    def note(self, tenant_id: str, own: str | None) -> LogText:
        """Note the policy in the database and return the effective one."""
        policy = cast("LogText", own) if own in get_args(LogText) else self.default
        self._keep(tenant_id, policy, _KNOWN_FOR_S)
        return policy

    def note_failure(self, tenant_id: str) -> LogText:
        """Return the policy while it cannot be read: the last known one, or "off"."""
        known = self._known.get(tenant_id)
        policy: LogText = "off" if known is None else known.policy
        self._keep(tenant_id, policy, _FAILED_FOR_S)
        return policy

    def _keep(self, tenant_id: str, policy: LogText, for_s: float) -> None:
        self._known[tenant_id] = _Known(policy, self._clock() + for_s)
        self._known.move_to_end(tenant_id)
        while len(self._known) > _MAX_TENANTS:
            self._known.popitem(last=False)


class LogTexts:
    """Applies one tenant's policy to its records.

    Args:
        policies: Policies of the process.
        settings: Settings of the tenant.
        tenant_id: That tenant.
        timeout_s: Time limit of reading the policy, if the look-up of the query has not read it.
    """

    def __init__(
        self, policies: LogTextPolicies, settings: LogTextSettings, tenant_id: str, *, timeout_s: float
    ) -> None:
        self._policies = policies
        self._settings = settings
        self._tenant_id = tenant_id
        self._timeout_s = timeout_s

    def note(self, own: str | None) -> None:
        """Note the tenant's policy, which was read with other data; None if it has none of its own."""
        self._policies.note(self._tenant_id, own)

    @property
    def is_known(self) -> bool:
        """True if the policy is known for a record of now."""
        return self._policies.find(self._tenant_id) is not None

    async def read(self) -> None:
        """Read the policy for later records. Raises nothing but a cancellation."""
        await self._policy()

    async def apply(self, log: QueryLog) -> QueryLog:
        """Return the record as it may leave this process. Raises nothing but a cancellation."""
        policy = await self._policy()
        chars = len(log.query_text) + len(log.generated_response)
        return await off_event_loop(chars, lambda: with_policy(log, policy, self._tenant_id))

    async def _policy(self) -> LogText:
        known = self._policies.find(self._tenant_id)
        if known is not None:
            return known
        try:
            async with asyncio.timeout(self._timeout_s):
                own = await self._settings.log_text()
        except (VectorForgeError, TimeoutError) as exc:
            policy = self._policies.note_failure(self._tenant_id)
            logger.warning(
                "The policy for logged texts was not read, using %s: %s", policy, type(exc).__name__
            )
            return policy
        return self._policies.note(self._tenant_id, own)


def with_policy(log: QueryLog, policy: LogText, tenant_id: str) -> QueryLog:
    """Return the record with the policy applied to its texts."""
    if policy == "full":
        return log
    query, answer = (_text(text, policy, tenant_id) for text in (log.query_text, log.generated_response))
    return replace(log, query_text=query, generated_response=answer)


def _text(text: str, policy: LogText, tenant_id: str) -> str:
    if policy == "off" or not text:
        return ""
    if policy == "hash":
        # with the tenant, so that hashes of two tenants cannot be compared
        digest = hashlib.sha256(f"{tenant_id}\0{text}".encode("utf-8", "surrogatepass"))
        return f"sha256:{digest.hexdigest()}"
    from vectorforge.pipeline.guardrails.redaction import redact

    return redact(text)
