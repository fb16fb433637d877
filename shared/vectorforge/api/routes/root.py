"""``/``: the web page for browsers, a description for everyone else."""

from fastapi import APIRouter, Request, Response

from vectorforge import __version__
from vectorforge.api.pages import page_response
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
    "GET /v1/stats": "How many questions, how fast, how dear, how good.",
    "GET /v1/providers": "The configured models.",
    "GET /v1/providers/{name}/models": "The models that a vendor offers.",
    "GET /health": "Whether it works.",
}


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
        response = page_response("index.html")
        response.headers["Vary"] = "Accept"
        return response
    return RootResponse(
        name="VectorForge", version=__version__, documentation="/openapi.json", endpoints=ENDPOINTS
    )
