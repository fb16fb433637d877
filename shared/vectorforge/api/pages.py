"""The web pages: each is sent as one file, under a policy that lets nothing run but what is in it."""

import hashlib
import re
from base64 import b64encode
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi.responses import HTMLResponse

_INLINE = re.compile(r"<(script|style)[^>]*>(.*?)</\1>", re.DOTALL | re.IGNORECASE)
_SCRIPT_FILE = re.compile(r'<script src="([\w/]+\.js)"></script>')
_STYLE_FILE = re.compile(r'<link rel="stylesheet" href="([\w/]+\.css)">')


def page_response(name: str) -> HTMLResponse:
    """The page of this file name in ``api/page``, the scripts and styles that it names written into it."""
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
    folder = files("vectorforge.api").joinpath("page")
    html = _with_its_files(folder.joinpath(name).read_text(encoding="utf-8"), folder)
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


def _with_its_files(html: str, folder: Traversable) -> str:
    """The page in one file: one request, and each part of it is held to its hash."""

    def text_of(match: re.Match[str]) -> str:
        return "\n" + folder.joinpath(match[1]).read_text(encoding="utf-8")

    html = _STYLE_FILE.sub(lambda match: f"<style>{text_of(match)}</style>", html)
    return _SCRIPT_FILE.sub(lambda match: f"<script>{text_of(match)}</script>", html)


def _sources(hashes: list[str]) -> str:
    return " ".join(hashes) or "'none'"
