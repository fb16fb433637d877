"""Web pages: the ask page, a cited source, statistics, and the API explorer at ``/docs``.

Each page is sent as one file, under a policy that allows nothing but its own script and style.
"""

import asyncio
import hashlib
import re
from base64 import b64encode
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from vectorforge.api.dependencies import application_of
from vectorforge.api.problems import route_not_found

router = APIRouter(include_in_schema=False)

_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)
_SCRIPT_FILE = re.compile(r'<script((?: [a-z]+="[\w/]+")*) src="([\w/]+\.js(?:on)?)"></script>')
_STYLE_FILE = re.compile(r'<link rel="stylesheet" href="([\w/]+\.css)">')


def page_response(name: str) -> HTMLResponse:
    """Return a page of ``api/page`` with its scripts and styles inlined."""
    return _response(*_page(name))


def _response(html: str, policy: str) -> HTMLResponse:
    return HTMLResponse(
        html,
        headers={
            "Content-Security-Policy": policy,
            "X-Frame-Options": "DENY",
            "Cache-Control": "no-cache",
        },
    )


_ANY_TEXT = 'accept="text/*"'
"""The page's attribute that lists the extensions of all supported types when it is served."""

_GROUPS = '<nav id="groups" aria-label="Groups">'
_OPERATIONS = '<div id="list">'
"""The explorer's elements that are filled from the OpenAPI document."""


@lru_cache
def _page(name: str) -> tuple[str, str]:
    """Return the page and its policy."""
    from vectorforge.ingestion.extract import media  # not needed to serve queries

    html = _html(name)
    return html.replace(_ANY_TEXT, f'accept="{",".join([*media.EXTENSIONS, "text/*"])}"'), _policy(html)


@lru_cache
def _explorer(openapi: Callable[[], dict[str, Any]]) -> tuple[str, str]:
    """Return the explorer of the document that a function returns, and its policy."""
    from vectorforge.api.native.explorer import Explorer  # not needed to serve queries

    groups, operations = Explorer(openapi()).parts()
    html = _html("explorer.html")
    filled = html.replace(_GROUPS, _GROUPS + groups).replace(_OPERATIONS, _OPERATIONS + operations)
    return filled, _policy(html)


def _policy(html: str) -> str:
    """Return a policy that allows exactly the page's own scripts and styles."""
    hashes: dict[str, list[str]] = {"script": [], "style": []}
    for kind, text in _INLINE.findall(html):
        digest = b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes[kind.lower()].append(f"'sha256-{digest}'")
    return (
        "default-src 'none'; "
        f"script-src {_sources(hashes['script'])}; "
        f"style-src {_sources(hashes['style'])}; "
        "connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"  # no text becomes markup or script
    )


def _html(name: str) -> str:
    """Return a page with its files inlined: one request, and each script is checked by its hash."""
    folder = files("vectorforge.api").joinpath("page")

    def text_of(path: str) -> str:
        return folder.joinpath(path).read_text(encoding="utf-8")

    html = _STYLE_FILE.sub(lambda match: f"<style>\n{text_of(match[1])}</style>", text_of(name))
    return _SCRIPT_FILE.sub(lambda match: f"<script{match[1]}>\n{text_of(match[2])}</script>", html)


def _sources(hashes: list[str]) -> str:
    return " ".join(hashes) or "'none'"


@router.head("/source")
@router.get("/source")
async def source_page() -> HTMLResponse:
    """Return the page of a cited document, which has no data and prompts for a key."""
    return page_response("source.html")


@router.head("/statistics")
@router.get("/statistics")
async def statistics_page() -> HTMLResponse:
    """Return the statistics page, which has no data and prompts for a key."""
    return page_response("statistics.html")


@router.head("/docs")
@router.get("/docs")
async def explorer_page(request: Request) -> Response:
    """Return the API explorer, which has no data and prompts for a key; 404 if the setting disables it."""
    if not application_of(request).config.server.api_explorer:
        return route_not_found(request.scope)
    return _response(*await asyncio.to_thread(_explorer, request.app.openapi))  # the first takes seconds
