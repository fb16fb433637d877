"""``/v1/collections/{collection_id}/embedding-switch``: change of the embedding model without downtime."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends
from pydantic import AliasPath, BaseModel, Field

from vectorforge.api.dependencies import (
    AdmittedTenant,
    ApplicationDep,
    CollectionInPath,
    Tenant,
    check_provider,
)
from vectorforge.api.error_schemas import problems
from vectorforge.api.schemas import Body, ModelName, ProviderName, RequestBody
from vectorforge.bootstrap import TenantServices
from vectorforge.embedding_switch.repo import SwitchState
from vectorforge.evaluation.embedding_gate import MAX_NDCG_LOSS, MAX_QUESTIONS, EmbeddingGate, GateThresholds
from vectorforge.evaluation.questions import Question, RelevantOrName
from vectorforge.types import Collection


class SwitchRequest(RequestBody):
    """The new model; omitted fields come from the embedding provider."""

    embedding_provider: ProviderName | None = None
    embedding_model: ModelName | None = None
    query_prefix: str | None = Field(default=None, max_length=500)
    document_prefix: str | None = Field(default=None, max_length=500)
    dry_run: bool = Field(default=False, description="True: only say what it would take; begin nothing.")


class JudgedQuestion(RequestBody):
    """A query and its known relevant documents."""

    question: Annotated[str, Field(min_length=1, max_length=100_000)]
    relevant: list[RelevantOrName] = Field(default_factory=list, max_length=1_000)


class ComparisonRequest(RequestBody):
    """Queries and thresholds for the comparison of the two models."""

    questions: Annotated[list[JudgedQuestion], Field(min_length=1, max_length=MAX_QUESTIONS)] | None = Field(
        default=None, description="Default: the last 100 queries to the collection."
    )
    k: int = Field(default=10, ge=1, le=100, description="Ranks that are compared.")
    min_overlap: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Minimum mean overlap of the first k; default: 0.4, or 0 with judged queries.",
    )
    max_ndcg_loss: float = Field(
        default=MAX_NDCG_LOSS, ge=0, le=1, description="Of nDCG@k on judged queries."
    )
    dry_run: bool = Field(default=False, description="True: only compare; the old model goes on answering.")
    skip_comparison: bool = Field(default=False, description="True: let the new model answer unseen.")

    def gate_questions(self) -> list[Question] | None:
        """Return the queries for the gate."""
        if self.questions is None:
            return None
        return [
            Question(str(number), query.question, tuple(query.relevant))
            for number, query in enumerate(self.questions)
        ]

    def thresholds(self) -> GateThresholds:
        """Return the thresholds for the gate."""
        return GateThresholds(self.k, self.min_overlap, self.max_ndcg_loss)


class EstimateBody(Body):
    """Effort to embed the collection with the new model."""

    provider: str
    model: str
    dimension: int
    passages: int
    tokens: int
    passages_per_s: float | None
    seconds: float | None
    cost_usd: float | None = Field(description="By the price list; null: it does not have the model.")


class SwitchBody(Body):
    """A change of a collection's embedding model."""

    id: UUID
    state: SwitchState
    other_provider: str = Field(
        validation_alias=AliasPath("other", "provider"),
        description="Of the model to come; once switched, of the one before.",
    )
    other_model: str = Field(validation_alias=AliasPath("other", "model"))
    other_dimension: int = Field(validation_alias=AliasPath("other", "dimension"))
    passages: int
    vectors: int = Field(description="Passages that have a vector of the other model.")
    failures: int = Field(description="Attempts to embed that failed since one last succeeded.")
    error_code: str | None
    error_message: str | None
    comparison: dict[str, Any] | None = Field(
        validation_alias="gate", description="What the last comparison has shown."
    )
    created_at: datetime
    switched_at: datetime | None


class StartedSwitch(BaseModel):
    """Result of starting a change, or of its dry run."""

    estimate: EstimateBody
    change: SwitchBody | None = Field(description="Null after a dry run.")


router = APIRouter(prefix="/v1/collections/{collection_id}/embedding-switch", tags=["collections"])

_STEP_PROBLEMS = problems(404, 409)


async def _collection(collection_id: CollectionInPath, tenant: Tenant) -> Collection:
    return await tenant.find_collection(collection_id)


SwitchedCollection = Annotated[Collection, Depends(_collection)]


@router.post("", status_code=202, responses=problems(404, 409, 413, 415, 429, 502, 504))
async def start_switch(
    body: SwitchRequest, collection: SwitchedCollection, application: ApplicationDep, tenant: AdmittedTenant
) -> StartedSwitch:
    """Start embedding the collection with another model in the background, without downtime."""
    check_provider("embedding_provider", body.embedding_provider, application.embedding_registry)
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
async def show_switch(collection: SwitchedCollection, tenant: Tenant) -> SwitchBody:
    """Return the progress of the open change; 404 if there is none."""
    return SwitchBody.of(await tenant.model_changes.stored.get(collection.id))


@router.post("/switch", responses=problems(404, 409, 413, 415, 429, 502, 504))
async def switch_model(
    body: ComparisonRequest, collection: SwitchedCollection, tenant: AdmittedTenant
) -> SwitchBody:
    """Compare the models, and switch to the new one if its results are similar enough."""
    gate, stored = EmbeddingGate(tenant, collection), tenant.model_changes.stored
    if body.dry_run:
        await gate.measure(body.gate_questions(), body.thresholds())
        return SwitchBody.of(await stored.get(collection.id))
    if body.skip_comparison:
        return SwitchBody.of(await stored.switch(collection.id))
    switched, _ = await gate.switch(body.gate_questions(), body.thresholds())
    return SwitchBody.of(switched)


@router.post("/rollback", responses=_STEP_PROBLEMS)
async def roll_back(collection: SwitchedCollection, tenant: Tenant) -> SwitchBody:
    """Switch back to the previous model at once; the change stays open."""
    return SwitchBody.of(await tenant.model_changes.stored.rollback(collection.id))


@router.post("/finish", status_code=202, responses=_STEP_PROBLEMS)
async def finish_switch(collection: SwitchedCollection, tenant: Tenant) -> SwitchBody:
    """Finish a switched change; the previous model's vectors are deleted in the background."""
    return await _end(collection, tenant, tenant.model_changes.stored.finish)


@router.post("/cancel", status_code=202, responses=_STEP_PROBLEMS)
async def cancel_switch(collection: SwitchedCollection, tenant: Tenant) -> SwitchBody:
    """Cancel a change before its switch; the new model's vectors are deleted in the background."""
    return await _end(collection, tenant, tenant.model_changes.stored.cancel)


async def _end(
    collection: Collection, tenant: TenantServices, end: Callable[[UUID], Awaitable[object]]
) -> SwitchBody:
    """Return the change as ending, since it may be deleted before it can be read again."""
    change = await tenant.model_changes.stored.get(collection.id)
    await end(collection.id)
    await tenant.model_changes.announce()
    return SwitchBody.of(replace(change, state=SwitchState.REMOVING))
