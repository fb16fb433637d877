"""The web pages: each one file, under a policy that lets nothing run but what is in it."""

import hashlib
import re
from base64 import b64encode
from functools import lru_cache
from importlib.resources import files

from fastapi.responses import HTMLResponse

_INLINE = re.compile(r"<(script|style)[^>]*>(.*?)</\1>", re.DOTALL | re.IGNORECASE)


def page_response(name: str) -> HTMLResponse:
    """The page of this file name in ``api/page``."""
    html, policy = _page(name)
    return HTMLResponse(
        html,
        headers={
            "Content-Security-Policy": policy,
            "X-Frame-Options": "DENY",
            "Cache-Control": "no-cache",
        },
    )


@lru_cache
def _page(name: str) -> tuple[str, str]:
    """The page and the policy that lets exactly its own script and style run."""
    html = files("vectorforge.api").joinpath("page", name).read_text(encoding="utf-8")
    hashes: dict[str, list[str]] = {"script": [], "style": []}
    for kind, text in _INLINE.findall(html):
        digest = b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes[kind.lower()].append(f"'sha256-{digest}'")
    policy = (
        "default-src 'none'; "
        f"script-src {_sources(hashes['script'])}; "
        f"style-src {_sources(hashes['style'])}; "
        "connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"  # no text becomes markup or script
    )
    return html, policy


def _sources(hashes: list[str]) -> str:
    return " ".join(hashes) or "'none'"
