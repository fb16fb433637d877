"""Texts in the query log: each tenant's policy, and the redaction of personal data and keys.

Redaction finds them by patterns, without a model: names, addresses and numbers that are personal only in
context stay. Other text is unchanged.
"""

import asyncio
import hashlib
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from ipaddress import ip_address
from typing import Literal, Protocol, TypeAlias, cast, get_args

from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.deadline import off_event_loop
from vectorforge.errors import VectorForgeError
from vectorforge.patterns import pattern_of

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


@dataclass(eq=False, slots=True)
class LogTexts:
    """Applies one tenant's policy to its records.

    Args:
        policies: Policies of the process.
        settings: Settings of the tenant.
        tenant_id: That tenant.
        timeout_s: Time limit of reading the policy, if the look-up of the query has not read it.
    """

    policies: LogTextPolicies
    settings: LogTextSettings
    tenant_id: str
    _: KW_ONLY
    timeout_s: float

    def note(self, own: str | None) -> None:
        """Note the tenant's policy, which was read with other data; None if it has none of its own."""
        self.policies.note(self.tenant_id, own)

    async def apply(self, log: QueryLog) -> QueryLog:
        """Return the record as it may leave this process. Raises nothing but a cancellation."""
        policy = await self._policy()
        chars = len(log.query_text) + len(log.generated_response)
        return await off_event_loop(chars, lambda: with_policy(log, policy, self.tenant_id))

    async def allowed(self, text: str) -> str:
        """Return a text that belongs to a query as it may be stored. Raises nothing but a cancellation."""
        policy = await self._policy()
        return text if policy == "full" else _text(text, policy, self.tenant_id)

    async def _policy(self) -> LogText:
        known = self.policies.find(self.tenant_id)
        if known is not None:
            return known
        try:
            async with asyncio.timeout(self.timeout_s):
                own = await self.settings.log_text()
        except (VectorForgeError, TimeoutError) as exc:
            policy = self.policies.note_failure(self.tenant_id)
            logger.warning(
                "The policy for logged texts was not read, using %s: %s", policy, type(exc).__name__
            )
            return policy
        return self.policies.note(self.tenant_id, own)


def with_policy(log: QueryLog, policy: LogText, tenant_id: str) -> QueryLog:
    """Return the record with the policy applied to its texts."""
    if policy == "full":
        return log
    query, answer = (_text(text, policy, tenant_id) for text in (log.query_text, log.generated_response))
    if query == log.query_text and answer == log.generated_response:
        return log
    request = log.request
    if request and query != log.query_text:
        # A short text could be guessed by it, and no replay can match it.
        request = {name: part for name, part in request.items() if name != "stop"} | {"sha256": None}
    return replace(log, query_text=query, generated_response=answer, request=request)


def _text(text: str, policy: LogText, tenant_id: str) -> str:
    if policy == "off" or not text:
        return ""
    if policy == "hash":
        # with the tenant, so that hashes of two tenants cannot be compared
        digest = hashlib.sha256(f"{tenant_id}\0{text}".encode("utf-8", "surrogatepass"))
        return f"sha256:{digest.hexdigest()}"
    return redact(text)


_SUSPECT_TEXTS = ("@", "://", "::", "eyJ")
_SUSPECT_WORDS = ("key", "secret", "token", "passw", "pwd")
_SUSPECT = [
    pattern_of(r"[A-Za-z0-9_-]{16}"),
    pattern_of(r"\d[\d\s().:/-]{4,}\d"),
    pattern_of(r"(?:bearer|basic)\s", re.IGNORECASE),
]
_URL_PASSWORD = pattern_of(r"(?<=://)[^\s/:@]{0,200}:[^\s/@]{1,200}(?=@)")
_KEY = pattern_of(
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:[^-]|-(?!----)){0,20000}+"
    r"(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?"
    r"|\b(?:eyJ[\w-]{8,4000}\.[\w-]{4,4000}\.[\w-]{0,2000})"
    r"|\b(?:sk|pk|rk|vf|ghp|gho|ghu|ghs|ghr|github_pat|glpat|xox[abeoprs]|xapp|hf|npm|pypi|dop_v1|shpat|whsec)"
    r"[-_][\w-]{12,500}"
    r"|\b(?:AKIA|ASIA|AIDA|AROA)[A-Z0-9]{16}\b|\bAIza[\w-]{30,60}|\bya29\.[\w-]{20,500}|\bSG\.[\w.-]{20,200}",
    re.ASCII,
)
_BEARER = pattern_of(r"\b((?:Bearer|Basic)\s{1,3})[\w.~+/=-]{12,4000}", re.ASCII | re.IGNORECASE)
_ASSIGNED = pattern_of(
    r"\b((?:api[_-]?key|secret(?:[_-]?access)?(?:[_-]?key)?|access[_-]?token|auth[_-]?token|client[_-]?secret"
    r"|passwor[dt]|passwd|pwd)[\"']?\s{0,3}[=:]\s{0,3}[\"']?)([^\s\"',;]{6,500})",
    re.ASCII | re.IGNORECASE,
)
_LETTER = r"\w\u00c0-\u024f"
"""Letters of names in addresses. Words of a script without spaces may adjoin a masked text."""
_EMAIL = pattern_of(
    rf"(?<![{_LETTER}.+%-])[{_LETTER}.+%'-]{{1,64}}@(?:[{_LETTER}-]{{1,63}}\.){{1,8}}[a-z][\w-]{{1,62}}(?![\w-])"
    r"|(?<=mailto:)[^\s?<>]{1,200}",
    re.ASCII | re.IGNORECASE,
)
_IBAN = pattern_of(r"\b[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]){11,30}\b", re.ASCII | re.IGNORECASE)
_CARD = pattern_of(r"(?<![\w.-])\d(?:[ .-]?\d){12,18}(?![\w-]|\.\d)", re.ASCII)
_IPV4 = pattern_of(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)", re.ASCII)
_IPV6 = pattern_of(
    r"(?<![\w:.])(?=[a-f:.]*\d)(?=[0-9a-f:.]*:[0-9a-f:.]*:)[0-9a-f:]{2,39}(?:(?:\d{1,3}\.){3}\d{1,3})?(?![\w:])",
    re.ASCII | re.IGNORECASE,
)
_PHONE = pattern_of(
    r"(?<![\w.+/-])(?:"
    r"(?:\+|00)[1-9](?:[ ./()-]{0,3}\d){6,14}"  # international: E.164
    r"|\(\d{2,5}\)[ ./-]{0,2}\d(?:[ ./-]?\d){4,9}"  # (555) 123-4567
    r"|\d{3}[ .-]\d{3}[ .-]\d{4}"  # 555-123-4567
    r"|0[1-9]\d{0,4}[ ./-]{1,3}\d(?:[ ./-]?\d){4,9}|0[1-9]\d{8,10}"  # with a trunk prefix
    r")(?![\w-]|\.\d)",
    re.ASCII,
)


def redact(text: str) -> str:
    """Return the text with e-mail addresses, phone and card numbers, IBANs, IP addresses and keys masked."""
    if not _is_suspect(text):
        return text
    text = _URL_PASSWORD.sub("[key]", text)
    text = _KEY.sub("[key]", text)
    text = _BEARER.sub(r"\1[key]", text)
    text = _ASSIGNED.sub(_masked_value, text)
    text = _EMAIL.sub("[email]", text)
    text = _IBAN.sub(_masked_iban, text)
    text = _CARD.sub(_masked("[card]", _has_luhn_digit), text)
    text = _IPV4.sub(_masked("[ip]", _is_address), text)
    text = _IPV6.sub(_masked("[ip]", _is_address), text)
    return _PHONE.sub("[phone]", text)


def _is_suspect(text: str) -> bool:
    """Return False for a text without anything to mask. One pattern of all would take four times as long."""
    lower = text.lower()
    return (
        any(part in text for part in _SUSPECT_TEXTS)
        or any(word in lower for word in _SUSPECT_WORDS)
        or any(pattern.search(text) for pattern in _SUSPECT)
    )


def _masked(mark: str, holds: Callable[[str], bool]) -> Callable[[re.Match[str]], str]:
    return lambda found: mark if holds(found[0]) else found[0]


def _masked_value(found: re.Match[str]) -> str:
    return found[0] if found[2].startswith("[key]") else f"{found[1]}[key]"


def _masked_iban(found: re.Match[str]) -> str:
    """Mask the longest part that is an IBAN: the pattern may include a word after the number."""
    for end in range(len(found[0]), 14, -1):
        if _is_iban(found[0][:end]):
            return "[iban]" + found[0][end:]
    return found[0]


def _is_iban(text: str) -> bool:
    """Check by ISO 13616: first four characters at the end, letters as 10 to 35, remainder modulo 97 is 1."""
    plain = re.sub(r"[ -]", "", text).upper()
    if not 15 <= len(plain) <= 34 or not text[-1].isalnum():
        return False
    return int("".join(str(int(c, 36)) for c in plain[4:] + plain[:4])) % 97 == 1


def _has_luhn_digit(text: str) -> bool:
    """Check by ISO/IEC 7812-1, annex B; a number of equal digits fails."""
    digits = [int(c) for c in text if c.isdigit()]
    if not 13 <= len(digits) <= 19 or len(set(digits)) == 1:
        return False
    doubled = [d if i % 2 == 0 else sum(divmod(2 * d, 10)) for i, d in enumerate(reversed(digits))]
    return sum(doubled) % 10 == 0


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
