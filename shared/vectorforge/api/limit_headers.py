"""What a response says of the tenant's limits: the RateLimit fields of IETF's HTTPAPI working group.

https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-10: ``q`` is a quota, ``w`` its
window, ``r`` what is left, ``t`` when there is more; seconds.
"""

import math

from vectorforge.limits.types import LimitState

_MINUTE_S, _DAY_S = 60, 86_400


def limit_headers(state: LimitState) -> list[tuple[bytes, bytes]]:
    """Header fields as in ASGI; none where nothing but cost and streams is limited, which have no window."""
    policies, left = [], []
    limits = state.limits
    if limits.requests_per_minute is not None:
        policies.append(f'"requests";q={limits.requests_per_minute};w={_MINUTE_S}')
        left.append(_service_limit("requests", state.requests_left, state.minute_reset_s))
    if limits.tokens_per_day is not None:
        policies.append(f'"tokens";q={limits.tokens_per_day};w={_DAY_S}')
        left.append(_service_limit("tokens", state.tokens_left, state.day_reset_s))
    if not policies:
        return []
    return [
        (b"ratelimit-policy", ", ".join(policies).encode()),
        (b"ratelimit", ", ".join(left).encode()),
    ]


def _service_limit(name: str, left: int | None, reset_s: float | None) -> str:
    more = "" if reset_s is None else f";t={max(1, math.ceil(reset_s))}"
    return f'"{name}";r={left or 0}{more}'
