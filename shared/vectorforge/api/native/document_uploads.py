"""Documents in a request, as files or as JSON, made into items of an ingestion job."""

import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser

from vectorforge.api.native.document_schemas import MAX_SOURCE_CHARS, DocumentsRequest
from vectorforge.api.schemas import MAX_METADATA_BYTES, storable
from vectorforge.config import IngestionSettings
from vectorforge.db.repositories.job_types import NewJobItem
from vectorforge.errors import InvalidInputError

REQUEST_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["files"],
                "properties": {
                    "files": {
                        "type": "array",
                        "minItems": 1,
                        "items": {"type": "string", "contentMediaType": "application/octet-stream"},
                        "description": "Each file's name becomes its source.",
                    },
                    "metadata": {
                        "type": "string",
                        "contentMediaType": "application/json",
                        "description": "A JSON object for all files.",
                    },
                },
            }
        },
        "application/json": {"schema": {"$ref": f"#/components/schemas/{DocumentsRequest.__name__}"}},
    },
}
"""OpenAPI description: FastAPI supports one body type per route only."""
_MAX_NAMED_SOURCES = 5
_SIZE_SETTING = "VECTORFORGE_MAX_DOCUMENT_BYTES"


async def read_job_items(request: Request, settings: IngestionSettings) -> list[NewJobItem]:
    """Read the documents in the request's body.

    Raises:
        HTTPException: 415, the body is neither JSON nor multipart; 413, a document is too large; 400, the
            body is malformed.
        RequestValidationError: The JSON is not a ``DocumentsRequest``.
        InvalidInputError: No file, too many documents, two of the same name, or metadata that is not an
            object.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == "multipart/form-data":
        form = await read_form(request, max_files=settings.max_documents_per_request)
        try:
            return await _items_of_form(form, settings)
        finally:
            await form.close()
    if media_type == "application/json":
        return _items_of_json(await _read_json(request), settings)
    raise HTTPException(415, "Send multipart/form-data with files, or application/json.")


async def read_form(request: Request, *, max_files: int) -> FormData:
    """Read a form of files and at most ten fields, which the caller closes.

    Raises:
        HTTPException: 400, the form is malformed or has too many parts.
    """
    parser = _WholeForm(request, max_files=max_files, max_fields=10, max_part_size=MAX_METADATA_BYTES)
    try:
        return await parser.parse()
    except MultiPartException as exc:
        raise HTTPException(400, exc.message) from exc


class _WholeForm(MultiPartParser):
    """Rejects a body without its last boundary, which would silently lose the last file."""

    def __init__(self, request: Request, **limits: int) -> None:
        super().__init__(request.headers, self._body(request), **limits)
        self._is_whole = False

    def on_end(self) -> None:
        self._is_whole = True

    async def _body(self, request: Request) -> AsyncGenerator[bytes, None]:
        async for chunk in request.stream():
            yield chunk
        if not self._is_whole:
            raise MultiPartException("The body ends before its last boundary.")


async def _items_of_form(form: FormData, settings: IngestionSettings) -> list[NewJobItem]:
    unknown = set(form) - {"files", "metadata"}
    if unknown:
        name = min(unknown)[:100]
        raise InvalidInputError("Unknown part; only `files` and `metadata` are supported.", field=name)
    uploads = [part for part in form.getlist("files") if isinstance(part, UploadFile)]
    if not uploads:
        raise InvalidInputError("At least one file is required, as a part named files.", field="files")
    metadata = _metadata_of(form)
    items = [await _item_of_upload(upload, metadata, settings) for upload in uploads]
    _check_sources((item.source for item in items), field="files")
    return items


def _check_sources(sources: Iterable[str], *, field: str) -> None:
    """Reject documents of one request that would replace each other."""
    repeated = [source[:100] for source, times in Counter(sources).items() if times > 1]
    if repeated:
        names = ", ".join(repr(source) for source in repeated[:_MAX_NAMED_SOURCES])
        more = " and others" if len(repeated) > _MAX_NAMED_SOURCES else ""
        raise InvalidInputError(f"Document names must be unique; repeated: {names}{more}.", field=field)


def _metadata_of(form: FormData) -> dict[str, Any]:
    texts = [part for part in form.getlist("metadata") if isinstance(part, str)]
    if not texts:
        return {}
    problem = InvalidInputError("metadata must be one JSON object of at most 64 KiB.", field="metadata")
    if len(texts) > 1:
        raise problem
    try:
        metadata = storable(json.loads(texts[0]))
    except (ValueError, RecursionError):
        raise problem from None
    if not isinstance(metadata, dict):
        raise problem
    return metadata


async def _item_of_upload(
    upload: UploadFile, metadata: dict[str, Any], settings: IngestionSettings
) -> NewJobItem:
    source = source_of(upload.filename or "")
    if not source:
        raise InvalidInputError("Every file needs a file name.", field="files")
    if (upload.size or 0) > settings.max_document_bytes:
        raise HTTPException(
            413, f"{source!r} is larger than {settings.max_document_bytes} bytes ({_SIZE_SETTING})."
        )
    return NewJobItem(
        source=source,
        media_type=upload.content_type or None,
        content=await upload.read(),
        title=None,
        metadata=metadata,
    )


def source_of(file_name: str) -> str:
    """Return the last component of a file name without control characters; may be empty."""
    last = file_name.replace("\\", "/").rsplit("/", 1)[-1]
    printable = "".join(c for c in storable(last) if c.isprintable()).strip()
    return "" if printable in (".", "..") else printable[:MAX_SOURCE_CHARS]


async def _read_json(request: Request) -> DocumentsRequest:
    try:
        return DocumentsRequest.model_validate(json.loads(await request.body()))
    except ValidationError as exc:
        errors = [{**error, "loc": ("body", *error["loc"])} for error in exc.errors(include_input=False)]
        raise RequestValidationError(errors) from exc
    except (ValueError, RecursionError) as exc:
        raise HTTPException(400, "The body is not JSON.") from exc


def _items_of_json(body: DocumentsRequest, settings: IngestionSettings) -> list[NewJobItem]:
    limit = settings.max_documents_per_request
    if len(body.documents) > limit:
        raise InvalidInputError(f"At most {limit} documents are allowed in one request.", field="documents")
    largest = settings.max_document_bytes
    for document in body.documents:
        if len(document.text.encode()) > largest:
            raise HTTPException(413, f"{document.source!r} is larger than {largest} bytes ({_SIZE_SETTING}).")
    _check_sources((document.source for document in body.documents), field="documents")
    return [
        NewJobItem(
            source=document.source,
            media_type=document.media_type,
            content=document.text.encode(),
            title=document.title,
            metadata=document.metadata,
        )
        for document in body.documents
    ]
