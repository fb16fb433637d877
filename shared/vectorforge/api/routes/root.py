"""``/``: the web page for browsers, a description for everyone else."""

import hashlib
import re
from base64 import b64encode
from functools import lru_cache
from importlib.resources import files

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from vectorforge import __version__
from vectorforge.api.schemas.server import RootResponse

router = APIRouter(tags=["server"])

ENDPOINTS = {
    "POST /v1/rag/query": "Ask the default collection: an answer with citations, whole or streamed.",
    "POST /v1/collections/{id}/query": "Ask one collection.",
    "POST /v1/search": "Find passages without an answer.",
    "POST /v1/collections": "Make a collection.",
    "POST /v1/collections/{id}/documents": "Add documents, as files or as JSON.",
    "GET /v1/jobs/{id}": "How far an ingestion is.",
    "GET /v1/queries": "The log of every question.",
    "GET /v1/providers": "The configured models.",
    "GET /v1/providers/{name}/models": "The models that a vendor offers.",
    "GET /health": "Whether it works.",
}

_INLINE = re.compile(r"<(script|style)[^>]*>(.*?)</\1>", re.DOTALL | re.IGNORECASE)


@router.head("/", response_model=RootResponse, include_in_schema=False)
@router.get(
    "/",
    response_model=RootResponse,
    responses={
        200: {
            "description": "The description, or for `Accept: text/html` the web page.",
            "content": {"text/html": {}},
        }
    },
)
async def root(request: Request) -> Response | RootResponse:
    """What this server is."""
    if "text/html" in request.headers.get("accept", ""):
        html, policy = _page()
        return HTMLResponse(
            html,
            headers={
                "Content-Security-Policy": policy,
                "X-Frame-Options": "DENY",
                "Cache-Control": "no-cache",
                "Vary": "Accept",
            },
        )
    return RootResponse(
        name="VectorForge", version=__version__, documentation="/openapi.json", endpoints=ENDPOINTS
    )


@lru_cache(maxsize=1)
def _page() -> tuple[str, str]:
    """The page and the policy that lets exactly its own script and style run."""
    html = files("vectorforge.api").joinpath("page/index.html").read_text(encoding="utf-8")
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
