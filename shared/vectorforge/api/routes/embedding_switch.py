"""``/v1/collections/{collection_id}/embedding-switch``: another embedding model, without a pause."""

from dataclasses import replace
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends

from vectorforge.api.dependencies import AdmittedTenant, ApplicationDep, Tenant, check_provider
from vectorforge.api.responses import problems
from vectorforge.api.schemas.embedding_switch import (
    ComparisonRequest,
    EstimateBody,
    StartedSwitch,
    SwitchBody,
    SwitchRequest,
)
from vectorforge.db.repositories.embedding_switch_repo import EmbeddingSwitch, SwitchState
from vectorforge.errors import NotFoundError
from vectorforge.evaluation.embedding_gate import EmbeddingGate
from vectorforge.types import Collection

router = APIRouter(prefix="/v1/collections/{collection_id}/embedding-switch", tags=["collections"])

_STEP_PROBLEMS = problems(404, 409)


async def _collection(collection_id: UUID, tenant: Tenant) -> Collection:
    collection = await tenant.collections.find_by_id(collection_id)
    if collection is None:
        raise NotFoundError(f"Collection {collection_id} not found")
    return collection


CollectionInPath = Annotated[Collection, Depends(_collection)]


@router.post("", status_code=202, responses=problems(404, 409, 413, 415, 429, 502, 504))
async def start_switch(
    body: SwitchRequest, collection: CollectionInPath, application: ApplicationDep, tenant: AdmittedTenant
) -> StartedSwitch:
    """Begin to embed the collection by another model, in the background; the old one answers meanwhile."""
    check_provider(
        "embedding_provider", body.embedding_provider, application.embedding_registry.list_providers()
    )
    changes = tenant.model_changes
    estimate = await changes.estimate(collection, body.embedding_provider, body.embedding_model)
    if body.dry_run:
        return StartedSwitch(estimate=EstimateBody.of(estimate), change=None)
    started = await changes.start(
        collection,
        body.embedding_provider,
        body.embedding_model,
        query_prefix=body.query_prefix,
        document_prefix=body.document_prefix,
    )
    return StartedSwitch(estimate=EstimateBody.of(estimate), change=SwitchBody.of(started))


@router.get("", responses=problems(404))
async def show_switch(collection: CollectionInPath, tenant: Tenant) -> SwitchBody:
    """How far the change has come; 404 when none is open."""
    return SwitchBody.of(await tenant.model_changes.stored.get(collection.id))


@router.post("/switch", responses=problems(404, 409, 413, 415, 429, 502, 504))
async def switch_model(
    body: ComparisonRequest, collection: CollectionInPath, tenant: AdmittedTenant
) -> SwitchBody:
    """Compare the models by questions, and let the new one answer if it finds enough of the same."""
    gate, stored = EmbeddingGate(tenant, collection), tenant.model_changes.stored
    if body.dry_run:
        await gate.measure(body.asked(), body.thresholds())
        return SwitchBody.of(await stored.get(collection.id))
    if body.skip_comparison:
        return SwitchBody.of(await stored.switch(collection.id))
    switched, _ = await gate.switch(body.asked(), body.thresholds())
    return SwitchBody.of(switched)


@router.post("/rollback", responses=_STEP_PROBLEMS)
async def roll_back(collection: CollectionInPath, tenant: Tenant) -> SwitchBody:
    """Let the model before answer again, at once; the change stays open."""
    return SwitchBody.of(await tenant.model_changes.stored.rollback(collection.id))


@router.post("/finish", status_code=202, responses=_STEP_PROBLEMS)
async def finish_switch(collection: CollectionInPath, tenant: Tenant) -> SwitchBody:
    """End a change that was switched; the vectors of the model before are deleted in the background."""
    stored = tenant.model_changes.stored
    found = await stored.get(collection.id)
    await stored.finish(collection.id)
    return await _removing(found, tenant)


@router.post("/cancel", status_code=202, responses=_STEP_PROBLEMS)
async def cancel_switch(collection: CollectionInPath, tenant: Tenant) -> SwitchBody:
    """End a change that was not switched; the vectors of the model to come are deleted in the background."""
    stored = tenant.model_changes.stored
    found = await stored.get(collection.id)
    await stored.cancel(collection.id)
    return await _removing(found, tenant)


async def _removing(found: EmbeddingSwitch, tenant: Tenant) -> SwitchBody:
    """The change as it has begun to end: it may be over before it could be read again."""
    await tenant.model_changes.announce()
    return SwitchBody.of(replace(found, state=SwitchState.REMOVING))
