"""Bodies of ``/v1/collections/{id}/uploads``."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints

from vectorforge.api.schemas.base import RequestBody

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
