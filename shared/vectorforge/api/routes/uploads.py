"""``/v1/collections/{id}/uploads``: files that go to S3 instead of through this server."""

from uuid import UUID

from fastapi import APIRouter

from vectorforge.api.dependencies import AdmittedTenant, ApplicationDep, check_at_most
from vectorforge.api.responses import problems
from vectorforge.api.schemas.uploads import UploadFormBody, UploadRequest
from vectorforge.aws.upload_keys import UploadKey, source_of
from vectorforge.errors import ConfigurationError, NotFoundError

router = APIRouter(prefix="/v1", tags=["documents"])


@router.post("/collections/{collection_id}/uploads", responses=problems(404, 409, 413, 415, 429))
async def prepare_upload(
    collection_id: UUID, body: UploadRequest, application: ApplicationDep, tenant: AdmittedTenant
) -> UploadFormBody:
    """Sign a form with which one file can be uploaded to S3 for some minutes.

    The ingest function takes it in once it is there.
    """
    forms = application.upload_forms
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
