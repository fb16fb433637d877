"""Bodies of ``/v1/collections/{id}/uploads``.

``/v1/collections/{id}/uploads``: files that go to S3 instead of through this server.
"""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, Field, StringConstraints

from vectorforge.api.dependencies import AdmittedTenant, ApplicationDep, check_at_most
from vectorforge.api.responses import problems
from vectorforge.api.schemas import RequestBody
from vectorforge.aws.uploads import UploadKey, source_of
from vectorforge.errors import ConfigurationError, NotFoundError

# RFC 6838, 4.2, without "$", which a form of S3 takes for the begin of a variable
_NAME = r"[A-Za-z0-9!#&^_.+-]+"
_MEDIA_TYPE = rf"^{_NAME}/{_NAME}(; ?{_NAME}=[\x20-\x23\x25-\x7e]+)?$"


class UploadRequest(RequestBody):
    """A file to be uploaded."""

    path: str = Field(
        min_length=1,
        max_length=1000,
        description="The file's name below the collection, e.g. handbook.pdf or policies/refunds.md. "
        "Uploaded again, it is a new version.",
    )
    content_type: Annotated[str, StringConstraints(max_length=200, pattern=_MEDIA_TYPE)] | None = Field(
        default=None, description="Media type; without it the format is told by the name, or by the content."
    )
    size_bytes: int | None = Field(
        default=None, ge=1, description="The file's size, if it is known; then S3 takes no other."
    )


class UploadFormBody(BaseModel):
    """Where and how to upload: POST the fields and then the part ``file``, as multipart/form-data."""

    url: str
    method: Literal["POST"] = "POST"
    fields: dict[str, str]
    expires_at: datetime = Field(description="S3 refuses the form after this time, or before.")
    max_bytes: int = Field(description="S3 refuses a larger file.")
    key: str
    source: str = Field(
        description="The document's name in its collection; `GET /v1/jobs?source=` finds its jobs."
    )


router = APIRouter(prefix="/v1", tags=["documents"])


@router.post("/collections/{collection_id}/uploads", responses=problems(404, 409, 413, 415, 429))
async def prepare_upload(
    collection_id: UUID, body: UploadRequest, application: ApplicationDep, tenant: AdmittedTenant
) -> UploadFormBody:
    """Sign a form with which one file can be uploaded to S3 for some minutes.

    The ingest function takes it in once it is there.
    """
    forms = application.aws.upload_forms
    if forms is None:
        raise ConfigurationError(
            "There is no bucket for uploads here (VECTORFORGE_UPLOADS_BUCKET); send documents to "
            "/v1/collections/{id}/documents."
        )
    collection = await tenant.collections.find_by_id(collection_id)
    if collection is None:
        raise NotFoundError(f"Collection {collection_id} not found")
    limit = application.config.ingestion.max_document_bytes
    check_at_most("size_bytes", body.size_bytes or 0, limit)
    key = UploadKey.make(tenant.tenant_id, collection.name, body.path).key
    form = await forms.sign(
        key,
        min_bytes=body.size_bytes or 1,
        max_bytes=body.size_bytes or limit,
        media_type=body.content_type,
    )
    return UploadFormBody(
        url=form.url,
        fields=dict(form.fields),
        expires_at=form.expires_at,
        max_bytes=body.size_bytes or limit,
        key=key,
        source=source_of(forms.bucket, key),
    )
