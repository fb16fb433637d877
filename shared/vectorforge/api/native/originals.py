"""Original files of documents, for download only, and images of their pages.

Nothing in a file may run on this origin, and PDFs are rendered in a child process.
"""

import asyncio
import json
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from threading import Event
from typing import Annotated, Any
from urllib.parse import quote as encoded
from uuid import UUID

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from vectorforge.api.dependencies import AdmittedTenant, ApplicationDep, Tenant, existing
from vectorforge.api.error_schemas import problems
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.db.repositories.original_repo import Original
from vectorforge.errors import NotDeployedError, NotFoundError, OriginalNotKeptError
from vectorforge.ingestion.types import ExtractionLimits

router = APIRouter(prefix="/v1/documents", tags=["documents"])

SAFE_HEADERS = {
    # An uploaded page neither runs nor loads anything, even if a browser shows it.
    "Content-Security-Policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    # Checked with each use, since a deletion must take effect at once.
    "Cache-Control": "private, no-cache",
}

_MISSING = (
    "The original of this document is missing in its bucket. Delete the document and ingest its file again."
)


async def find_original(tenant: TenantServices, document_id: UUID) -> Original:
    """Return the original of a document.

    Raises:
        NotFoundError: There is no such document.
        OriginalNotKeptError: Its file is not stored.
    """
    original = await tenant.originals.find(document_id)
    if original is None:
        existing(await tenant.documents.find_by_id(document_id), "Document", document_id)
        raise OriginalNotKeptError(
            "The original of this document is not kept. Ingest its file again into a collection with "
            "`keep_originals`."
        )
    return original


def disposition(original: Original) -> str:
    """Return ``Content-Disposition`` (RFC 6266): a download named as the source, for curl in ASCII."""
    plain = re.sub(r'[^ -~]|["%\\]', "_", original.file_name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded(original.file_name, safe='')}"


def is_cached(request: Request, etag: str) -> bool:
    """Return True if the client has this version (RFC 9110, section 13.1.2)."""
    given = request.headers.get("if-none-match", "")
    return etag in (part.strip().removeprefix("W/") for part in given.split(","))


_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.IGNORECASE)


def requested_range(request: Request, etag: str, size: int) -> range | None:
    """Return the requested part of a file (RFC 9110, section 14); None for the whole.

    Several ranges, malformed ones, and one of another version (``If-Range``) request the whole.

    Raises:
        HTTPException: 416: the file has no byte of the range.
    """
    matched = _RANGE.fullmatch(request.headers.get("range", "").strip())
    if matched is None or request.headers.get("if-range", etag) != etag:
        return None
    first, last = matched.groups()
    if not (first or last) or (first and last and int(first) > int(last)):
        return None
    if first:
        part = range(int(first), min(int(last), size - 1) + 1 if last else size)
    else:  # the last bytes
        part = range(max(size - int(last), 0), size)
    if not part:
        detail = f"`Range` must begin within the {size:,} bytes of the file."
        raise HTTPException(416, detail, headers={"Content-Range": f"bytes */{size}"})
    return part


@router.get(
    "/{document_id}/original",
    response_class=Response,
    responses={
        **problems(404, 416),
        206: {
            "description": "The part that `Range` requests.",
            "content": {"*/*": {}},
        },
        200: {
            "description": "The file; with `redirect=false` from a bucket an empty body and its `Location`.",
            "content": {"*/*": {}},
        },
        304: {"description": "The client has it: `If-None-Match`."},
        307: {"description": "The file is in a bucket; `Location` is valid for five minutes."},
    },
)
async def download_original(
    request: Request,
    document_id: UUID,
    application: ApplicationDep,
    tenant: Tenant,
    redirect: Annotated[
        bool, Query(description="False: respond 200 with `Location` where it would be a redirect.")
    ] = True,
) -> Response:
    """Download the file that a document was made of, or a range of it, as an attachment."""
    original = await find_original(tenant, document_id)
    bucket = application.aws.originals_bucket
    if original.object_key is not None and bucket is not None:
        if await bucket.find(original.object_key) is None:  # the link would lead to an error page of S3
            raise OriginalNotKeptError(_MISSING)
        link = await bucket.link(
            original.object_key, media_type=original.media_type, disposition=disposition(original)
        )
        headers = {"Location": link, "Cache-Control": "private, no-store"}
        return Response(status_code=307 if redirect else 200, headers=headers)
    etag = f'"{original.sha256.hex()}"'
    headers = {**SAFE_HEADERS, "ETag": etag, "Content-Disposition": disposition(original)}
    headers["Accept-Ranges"] = "bytes"
    if is_cached(request, etag):
        return Response(status_code=304, headers=headers)
    part = requested_range(request, etag, original.size_bytes)
    if part is not None:
        headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{original.size_bytes}"
    # No charset: that of a text file is unknown.
    headers["Content-Type"] = original.media_type
    read = partial(content_of, application, tenant, original)
    response = await in_parts(read, range(original.size_bytes) if part is None else part, headers)
    response.status_code = 200 if part is None else 206
    return response


_PART_BYTES = 256 * 1024


async def in_parts(
    read: Callable[[range], Awaitable[bytes]], requested: range, headers: Mapping[str, str]
) -> Response:
    """Return a response that reads a file while it is sent: slow clients would fill the memory with files."""
    first = await read(requested[:_PART_BYTES])  # its error has a status

    async def parts() -> AsyncIterator[bytes]:
        yield first
        for start in range(_PART_BYTES, len(requested), _PART_BYTES):
            yield await read(requested[start : start + _PART_BYTES])

    return StreamingResponse(parts(), headers={**headers, "Content-Length": str(len(requested))})


PAGE_IMAGE_TIMEOUT_S = 20.0
"""Time limit of rendering one page."""
MAX_QUOTE_CHARS = 1_000
_WITH_PAGES = ("application/pdf", "image/png", "image/jpeg", "image/tiff")
_PAGES_AT_ONCE = 2
"""Each may take 2 GiB of address space."""


async def _marks(
    tenant: TenantServices, document_id: UUID, page: int, chunk_id: UUID | None
) -> list[list[float]]:
    """Return the rectangles of a chunk of the document on a page."""
    if chunk_id is None:
        return []
    cited = existing(await tenant.documents.chunk(chunk_id), "Chunk", chunk_id)
    existing(cited if cited.chunk.document_id == document_id else None, "Chunk", chunk_id)
    return [
        rect
        for location in (() if cited.retired else cited.chunk.locations)
        if location.get("page") == page
        for rect in location.get("rects", ())
    ]


@router.get(
    "/{document_id}/pages/{page}.png",
    response_class=Response,
    responses={
        **problems(404, 429, 501),
        200: {"description": "The page.", "content": {"image/png": {}}},
        304: {"description": "The client has it: `If-None-Match`."},
    },
)
async def show_page(
    request: Request,
    document_id: UUID,
    page: Annotated[int, Path(ge=1, le=100_000, description="Number of the page, from 1.")],
    application: ApplicationDep,
    tenant: AdmittedTenant,
    width: Annotated[int, Query(ge=100, le=2_000, description="Width in pixels, at most.")] = 1_200,
    chunk_id: Annotated[UUID | None, Query(description="Chunk whose lines are marked.")] = None,
    quote: Annotated[
        str, Query(max_length=MAX_QUOTE_CHARS, description="Sentence to mark more strongly, if it is there.")
    ] = "",
) -> Response:
    """Render a page of a PDF or of an image, with the lines of a chunk marked."""
    original = await find_original(tenant, document_id)
    if original.media_type not in _WITH_PAGES:
        raise NotFoundError("Only PDFs and images have page images; this document is another type of file.")
    rects = await _marks(tenant, document_id, page, chunk_id)
    arguments: dict[str, Any] = {"page": page, "width": width, "rects": rects, "quote": quote}
    version = sha256(original.sha256 + json.dumps(arguments).encode()).hexdigest()
    headers = {**SAFE_HEADERS, "ETag": f'"{version}"'}
    if is_cached(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    if find_spec("pypdfium2") is None:
        raise NotDeployedError(
            "Page images are not deployed here: pypdfium2 is not installed. On AWS only the ingest function "
            "has it. Download the original instead."
        )
    image = await _rendered(request, partial(content_of, application, tenant, original), arguments)
    return Response(image, media_type="image/png", headers=headers)


async def content_of(
    application: Application, tenant: TenantServices, original: Original, part: range | None = None
) -> bytes:
    """Return an original, or a part of it.

    Raises:
        OriginalNotKeptError: It was replaced or deleted meanwhile, or is missing in its bucket.
        ObjectStoreError: The bucket did not respond.
    """
    bucket = application.aws.originals_bucket
    if original.object_key is not None and bucket is not None:
        if (found := await bucket.read(original.object_key, part)) is None:
            raise OriginalNotKeptError(_MISSING)
        return found
    content = await tenant.originals.content(original, part)
    if content is None:  # replaced or deleted meanwhile, or its bucket is no longer configured
        raise OriginalNotKeptError
    return content


def _slots_of(request: Request) -> asyncio.Semaphore:
    """Return the limit of pages that an app renders at once."""
    state = request.app.state
    if not hasattr(state, "page_slots"):
        state.page_slots = asyncio.Semaphore(_PAGES_AT_ONCE)
    slots: asyncio.Semaphore = state.page_slots
    return slots


async def _rendered(
    request: Request, read: Callable[[], Awaitable[bytes]], arguments: Mapping[str, Any]
) -> bytes:
    """Return the PNG of a page, rendered in a child process."""
    from vectorforge.ingestion.extract.isolation import PAGE_IMAGE, run_isolated

    cancellation = Event()
    limits = ExtractionLimits(timeout_s=PAGE_IMAGE_TIMEOUT_S)
    async with _slots_of(request):
        content = await read()  # not before: those that wait would fill the memory
        try:
            result = await asyncio.to_thread(
                run_isolated, PAGE_IMAGE, content, arguments, limits=limits, cancellation=cancellation
            )
        except asyncio.CancelledError:
            cancellation.set()
            raise
    if "png" not in result:
        raise NotFoundError(f"The document has {result['pages']:,} pages.")
    return b64decode(result["png"])
