"""Bodies of ``/v1/files``, of the files of vector stores, and of their batches.

Unknown fields of requests are ignored; unsupported options that would change the result are rejected by name.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from vectorforge.api.openai.ids import FILE, FILE_BATCH, VECTOR_STORE, prefixed
from vectorforge.api.openai.request_schemas import OpenAIBody
from vectorforge.api.openai.vector_stores.store_schemas import (
    MAX_BATCH_FILES,
    Attributes,
    ChunkingStrategy,
    CursorList,
    FileCounts,
    FileReference,
    TextContent,
    attributes_of,
    unix_time,
)
from vectorforge.db.repositories.file_repo import StoredFile
from vectorforge.db.repositories.job_types import IngestionJob

_MAX_VALUE_CHARS = 512


def _attribute(value: object) -> object:
    """Check a value before the union does, which would report an error for each of its types."""
    if not isinstance(value, str | bool | int | float) or len(str(value)) > _MAX_VALUE_CHARS:
        raise ValueError(f"must be a string of at most {_MAX_VALUE_CHARS} characters, a number or a boolean")
    return value


def _without_clashes(attributes: dict[str, Any]) -> dict[str, Any]:
    metadata_of(attributes)
    return attributes


NewAttributes = Annotated[
    dict[
        Annotated[str, Field(min_length=1, max_length=64)],
        Annotated[
            bool | int | float | Annotated[str, Field(max_length=_MAX_VALUE_CHARS)],
            BeforeValidator(_attribute),
        ],
    ],
    Field(max_length=16),
    AfterValidator(_without_clashes),
]


def metadata_of(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return attributes as metadata, the reverse of ``attributes_of``: dotted keys become nested objects.

    Raises:
        ValueError: A key names a value and an object, such as ``a`` and ``a.b``.
    """
    metadata: dict[str, Any] = {}
    for key, value in (attributes or {}).items():
        *parents, name = key.split(".")
        inner = metadata
        for parent in parents:
            inner = inner.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise ValueError(f"{key} is within another attribute")
        if name in inner:
            raise ValueError(f"{key} is an attribute and contains others")
        inner[name] = value
    return metadata


class VectorStoreFileRequest(OpenAIBody):
    """A file to attach."""

    file_id: FileReference
    attributes: NewAttributes | None = None
    chunking_strategy: ChunkingStrategy | None = None


class VectorStoreFileUpdate(OpenAIBody):
    """New attributes of a file, in place of all that it has."""

    attributes: NewAttributes | None = Field(description="Null: none.")


class FileBatchRequest(OpenAIBody):
    """Files to attach together: ``file_ids`` with attributes for all, or ``files`` with their own."""

    file_ids: Annotated[list[FileReference], Field(min_length=1, max_length=MAX_BATCH_FILES)] | None = None
    files: Annotated[list[VectorStoreFileRequest], Field(min_length=1, max_length=MAX_BATCH_FILES)] | None = (
        None
    )
    attributes: NewAttributes | None = Field(default=None, description="Of all file_ids; not of files.")
    chunking_strategy: ChunkingStrategy | None = None

    @model_validator(mode="after")
    def _one_list(self) -> Self:
        if (self.file_ids is None) == (self.files is None):
            raise ValueError("either file_ids or files is required")
        return self

    @property
    def requested(self) -> list[VectorStoreFileRequest]:
        """The files with their attributes."""
        if self.files is not None:
            return self.files
        attributes = self.attributes
        return [VectorStoreFileRequest(file_id=id_, attributes=attributes) for id_ in self.file_ids or ()]


class OtherStrategy(BaseModel):
    """Chunking strategy without a name in OpenAI's API."""

    type: Literal["other"] = "other"


class LastError(BaseModel):
    """Reason of a failure."""

    code: Literal["server_error", "unsupported_file", "invalid_file"]
    message: str


class VectorStoreFileBody(BaseModel):
    """A document, or a file that is to become one."""

    id: str
    object: Literal["vector_store.file"] = "vector_store.file"
    created_at: int = Field(description="Unix time in seconds.")
    vector_store_id: str
    filename: str = Field(description="The document's source. Not in OpenAI's own object.")
    status: Literal["in_progress", "completed", "failed", "cancelled"]
    last_error: LastError | None
    usage_bytes: int = Field(description="Of the text as UTF-8.")
    attributes: Attributes = Field(description="The document's metadata, flat.")
    chunking_strategy: OtherStrategy = Field(default_factory=OtherStrategy)

    @classmethod
    def of(cls, file: StoredFile) -> Self:
        """Return the body of an attached file."""
        assert file.collection_id is not None  # noqa: S101 - attached
        return cls.model_validate(
            {
                "id": prefixed(FILE, file.id),
                "created_at": unix_time(file.created_at),
                "vector_store_id": prefixed(VECTOR_STORE, file.collection_id),
                "filename": file.source,
                "status": file.status,
                "last_error": _last_error(file),
                "usage_bytes": file.text_bytes,
                "attributes": attributes_of(file.metadata),
            }
        )


def _last_error(file: StoredFile) -> LastError | None:
    if file.status != "failed":
        return None
    code = file.error_code
    if code is None:
        message = "Its place was taken by another document with the same source."
        return LastError(code="server_error", message=message)
    kind: Any = "invalid_file" if code.startswith("document_") else "server_error"
    if code == "document_unsupported_type":
        kind = "unsupported_file"
    return LastError(code=kind, message=file.error_message or code)


class VectorStoreFileList(CursorList):
    """A page of files of a vector store."""

    data: list[VectorStoreFileBody]


class VectorStoreFileDeleted(BaseModel):
    """A document that was deleted."""

    id: str
    object: Literal["vector_store.file.deleted"] = "vector_store.file.deleted"
    deleted: Literal[True] = True


class FileContentPage(BaseModel):
    """The whole extracted text of a document."""

    object: Literal["vector_store.file_content.page"] = "vector_store.file_content.page"
    data: list[TextContent]
    has_more: Literal[False] = False
    next_page: None = None


class FileBatchBody(BaseModel):
    """Files attached together: an ingestion job."""

    id: str
    object: Literal["vector_store.files_batch"] = "vector_store.files_batch"
    created_at: int = Field(description="Unix time in seconds.")
    vector_store_id: str
    status: Literal["in_progress", "completed", "cancelled", "failed"]
    file_counts: FileCounts

    @classmethod
    def of(cls, job: IngestionJob, cancelled: int) -> Self:
        """Return the body of a job, of whose documents so many were canceled."""
        done, failed = job.documents_done, job.documents_failed
        open_ = job.documents_total - done - failed
        if cancelled:
            status = "cancelled"
        elif job.finished_at is None:
            status = "in_progress"
        else:
            status = "failed" if job.status == "failed" else "completed"
        counts = FileCounts(
            in_progress=open_,
            completed=done,
            failed=failed - cancelled,
            cancelled=cancelled,
            total=job.documents_total,
        )
        return cls.model_validate(
            {
                "id": prefixed(FILE_BATCH, job.id),
                "created_at": unix_time(job.created_at),
                "vector_store_id": prefixed(VECTOR_STORE, job.collection_id),
                "status": status,
                "file_counts": counts,
            }
        )


class FileBody(BaseModel):
    """An uploaded file, or a document."""

    id: str
    object: Literal["file"] = "file"
    bytes: int = Field(description="Of a document that was not uploaded as a file: of its text.")
    created_at: int = Field(description="Unix time in seconds.")
    expires_at: int | None = Field(description="If it is not attached to a vector store by then.")
    filename: str
    purpose: Literal["assistants", "user_data"]
    status: Literal["processed", "error"] = Field(description="error: its ingestion failed.")
    status_details: str | None

    @classmethod
    def of(cls, file: StoredFile) -> Self:
        """Return the body of a file."""
        return cls.model_validate(
            {
                "id": prefixed(FILE, file.id),
                "bytes": file.size_bytes,
                "created_at": unix_time(file.created_at),
                "expires_at": file.expires_at and unix_time(file.expires_at),
                "filename": file.filename or file.source,
                "purpose": file.purpose,
                "status": "error" if file.status == "failed" else "processed",
                "status_details": file.error_message,
            }
        )


class FileList(CursorList):
    """A page of files."""

    data: list[FileBody]


class FileDeleted(BaseModel):
    """A file that was deleted."""

    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True
