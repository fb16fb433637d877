"""Pages of other origins: which may read responses (CORS), and which may use a server without a login.

https://fetch.spec.whatwg.org/#http-cors-protocol
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.types import Scope

from vectorforge.config import ServerSettings
from vectorforge.config.access import ANY_ORIGIN, origins_pattern
from vectorforge.errors import ConfigurationError

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_EXPOSED: Final = (
    "X-Request-Id",
    "Retry-After",
    "RateLimit",
    "RateLimit-Policy",
    "Idempotent-Replayed",
    "Location",
    "WWW-Authenticate",
)
"""Response headers that a script may read besides those that the standard allows."""
_PREFLIGHT_AGE_S: Final = 7200
"""Time for which a browser may reuse a preflight's answer; Chromium's maximum."""


def cors_options(server: ServerSettings) -> dict[str, Any]:
    """Arguments of Starlette's ``CORSMiddleware``; empty without ``VECTORFORGE_CORS_ORIGINS``.

    Any request header is allowed, since SDKs send their own. Only listed origins may send credentials.

    Raises:
        ConfigurationError: All origins are allowed on a server without a login.
    """
    origins = server.cors_origins
    if not origins:
        return {}
    any_origin = ANY_ORIGIN in origins
    if any_origin and server.auth == "local":
        raise ConfigurationError(
            "VECTORFORGE_CORS_ORIGINS=* needs VECTORFORGE_AUTH=api_key: without a login every web page could "
            "read and change the documents. List the origins of your pages instead."
        )
    return {
        "allow_origins": (ANY_ORIGIN,) if any_origin else (),
        "allow_origin_regex": None if any_origin else origins_pattern(origins),
        "allow_credentials": not any_origin,
        "allow_methods": _METHODS,
        "allow_headers": ("*",),
        "allow_private_network": True,
        "expose_headers": _EXPOSED,
        "max_age": _PREFLIGHT_AGE_S,
    }


class OriginCheck:
    """Recognizes requests that pages of other origins send.

    Args:
        allowed: Origins whose pages may send requests, as in ``VECTORFORGE_CORS_ORIGINS``.
    """

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = re.compile(origins_pattern(allowed))

    def is_foreign(self, scope: Scope) -> bool:
        """Return whether a page of an origin that is not allowed sent this, other than to open a page here.

        Another port of the same host is another origin, although browsers call it the same site.
        https://developer.mozilla.org/docs/Web/HTTP/Reference/Headers/Sec-Fetch-Site
        """
        headers = Headers(scope=scope)
        site = headers.get("sec-fetch-site")
        if site in ("same-origin", "none"):
            return False
        if (origin := headers.get("origin")) is not None:
            own = f"{scope['scheme']}://{headers.get('host', '')}".lower()
            return origin != own and self._allowed.fullmatch(origin) is None
        opens_page = (
            scope["method"] == "GET"
            and headers.get("sec-fetch-mode") == "navigate"
            and headers.get("sec-fetch-dest") == "document"
        )
        return site is not None and not opens_page
