"""Bodies of ``/v1/collections/{collection_id}/embedding-switch``."""

from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, Field

from vectorforge.api.schemas.base import ModelName, ProviderName, RequestBody
from vectorforge.bootstrap.model_changes import EmbeddingEstimate
from vectorforge.db.repositories.embedding_switch_repo import EmbeddingSwitch, SwitchState
from vectorforge.evaluation.embedding_gate import MAX_NDCG_LOSS, MAX_QUESTIONS, GateThresholds
from vectorforge.evaluation.questions import Question, Relevant


class SwitchRequest(RequestBody):
    """The model to come; what is left out comes from the embedding provider."""

    embedding_provider: ProviderName | None = None
    embedding_model: ModelName | None = None
    query_prefix: str | None = Field(default=None, max_length=500)
    document_prefix: str | None = Field(default=None, max_length=500)
    dry_run: bool = Field(default=False, description="True: only say what it would take; begin nothing.")


def _of_name(value: Any) -> Any:
    """A source's name alone is a whole document."""
    return {"source": value} if isinstance(value, str) else value


class JudgedQuestion(RequestBody):
    """A question, and what is known to be relevant to it."""

    question: Annotated[str, Field(min_length=1, max_length=100_000)]
    relevant: list[Annotated[Relevant, BeforeValidator(_of_name)]] = Field(
        default_factory=list, max_length=1_000
    )


class ComparisonRequest(RequestBody):
    """What the two models are compared by before the new one answers."""

    questions: list[JudgedQuestion] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_QUESTIONS,
        description="Left out: the 100 questions that the collection was asked last.",
    )
    k: int = Field(default=10, ge=1, le=100, description="Ranks that are compared.")
    min_overlap: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Mean share of the old model's first k that the new one's must hold. Left out: 0.4, or 0 "
        "where questions are judged.",
    )
    max_ndcg_loss: float = Field(
        default=MAX_NDCG_LOSS, ge=0, le=1, description="How much nDCG@k may fall on judged questions."
    )
    dry_run: bool = Field(default=False, description="True: only compare; the old model goes on answering.")
    skip_comparison: bool = Field(default=False, description="True: let the new model answer unseen.")

    def asked(self) -> list[Question] | None:
        """The questions as the gate takes them."""
        if self.questions is None:
            return None
        return [
            Question(str(number), question.question, tuple(question.relevant))
            for number, question in enumerate(self.questions)
        ]

    def thresholds(self) -> GateThresholds:
        """The thresholds as the gate takes them."""
        return GateThresholds(self.k, self.min_overlap, self.max_ndcg_loss)


class EstimateBody(BaseModel):
    """What it takes to embed the collection by the model to come."""

    provider: str
    model: str
    dimension: int
    passages: int
    tokens: int
    passages_per_s: float | None
    seconds: float | None
    cost_usd: float | None = Field(description="By the price list; null: it does not have the model.")

    @classmethod
    def of(cls, estimate: EmbeddingEstimate) -> Self:
        """The body for the estimate."""
        return cls.model_validate(estimate, from_attributes=True)


class SwitchBody(BaseModel):
    """A change of a collection's embedding model."""

    id: UUID
    state: SwitchState
    other_provider: str = Field(description="Of the model to come; once switched, of the one before.")
    other_model: str
    other_dimension: int
    passages: int
    vectors: int = Field(description="Passages that have a vector of the other model.")
    failures: int = Field(description="Attempts to embed that failed since one last succeeded.")
    error_code: str | None
    error_message: str | None
    comparison: dict[str, Any] | None = Field(description="What the last comparison has shown.")
    created_at: datetime
    switched_at: datetime | None

    @classmethod
    def of(cls, switch: EmbeddingSwitch) -> Self:
        """The body for the change."""
        return cls(
            id=switch.id,
            state=switch.state,
            other_provider=switch.other.provider,
            other_model=switch.other.model,
            other_dimension=switch.other.dimension,
            passages=switch.passages,
            vectors=switch.vectors,
            failures=switch.failures,
            error_code=switch.error_code,
            error_message=switch.error_message,
            comparison=None if switch.gate is None else dict(switch.gate),
            created_at=switch.created_at,
            switched_at=switch.switched_at,
        )


class StartedSwitch(BaseModel):
    """What beginning a change did, or would do."""

    estimate: EstimateBody
    change: SwitchBody | None = Field(description="Null after a dry run.")
