"""Request bodies of the operations Retrieve, RetrieveAndGenerate and RetrieveAndGenerateStream.

They have the supported members of the service model. Others are rejected, since ignoring one would change the
answer, or who may see it. https://docs.aws.amazon.com/bedrock/latest/APIReference/API_Operations_Agents_for_Amazon_Bedrock_Runtime.html
"""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from vectorforge.api.schemas import RequestBody

MAX_QUERY_CHARS = 20_000  # as in Bedrock's API
MAX_ID_CHARS = 2048
MAX_RESULTS = 100
MAX_TEMPLATE_CHARS = 4000


class BedrockRequest(RequestBody):
    """A structure of a request; members that it does not have are rejected."""

    model_config = ConfigDict(alias_generator=to_camel)

    @model_validator(mode="before")
    @classmethod
    def _supported(cls, value: Any) -> Any:
        known = {field.alias for field in cls.model_fields.values()}
        unknown = [str(name)[:100] for name in value if name not in known] if isinstance(value, dict) else []
        if unknown:
            raise ValueError(f"{unknown[0]} is not supported; supported: {', '.join(map(str, known))}")
        return value


class KnowledgeBaseQuery(BedrockRequest):
    """The query of a search."""

    text: str = Field(max_length=MAX_QUERY_CHARS)
    type: Literal["TEXT"] = "TEXT"


class VectorSearchConfiguration(BedrockRequest):
    """Selection of chunks."""

    number_of_results: Annotated[int, Field(ge=1, le=MAX_RESULTS)] | None = Field(
        default=None, description="Passages to return; 5 without it."
    )
    override_search_type: Literal["HYBRID", "SEMANTIC"] | None = None
    filter: dict[str, Any] | None = Field(
        default=None, description="One operator of Bedrock's `RetrievalFilter` with its operands."
    )


class RetrievalConfiguration(BedrockRequest):
    """Settings of a search."""

    vector_search_configuration: VectorSearchConfiguration = VectorSearchConfiguration()


class RetrieveRequest(BedrockRequest):
    """A search without an answer."""

    retrieval_query: KnowledgeBaseQuery
    retrieval_configuration: RetrievalConfiguration = RetrievalConfiguration()


class TextInferenceConfig(BedrockRequest):
    """Sampling parameters."""

    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    stop_sequences: (
        Annotated[list[Annotated[str, Field(min_length=1, max_length=1000)]], Field(max_length=4)] | None
    ) = None


class InferenceConfig(BedrockRequest):
    """Parameters of the model."""

    text_inference_config: TextInferenceConfig = TextInferenceConfig()


class PromptTemplate(BedrockRequest):
    """A prompt in place of the server's."""

    text_prompt_template: Annotated[str, Field(min_length=1, max_length=MAX_TEMPLATE_CHARS)] | None = Field(
        default=None, description="Must contain `$search_results$`; `$query$` is optional."
    )


class GenerationConfiguration(BedrockRequest):
    """Settings of the answer."""

    prompt_template: PromptTemplate = PromptTemplate()
    inference_config: InferenceConfig = InferenceConfig()


class QueryTransformationConfiguration(BedrockRequest):
    """Sub-queries."""

    type: Literal["QUERY_DECOMPOSITION"]


class OrchestrationConfiguration(BedrockRequest):
    """Settings of the search for an answer."""

    query_transformation_configuration: QueryTransformationConfiguration | None = None


class KnowledgeBaseConfiguration(BedrockRequest):
    """Collection, model and settings of an answer."""

    knowledge_base_id: str = Field(
        min_length=1, max_length=MAX_ID_CHARS, description="Name or id of a collection."
    )
    model_arn: str = Field(
        min_length=1,
        max_length=MAX_ID_CHARS,
        description="`provider`, `provider/model`, or a Bedrock model, which the provider `bedrock` answers "
        "with; the default model if that provider is not configured.",
    )
    retrieval_configuration: RetrievalConfiguration = RetrievalConfiguration()
    generation_configuration: GenerationConfiguration = GenerationConfiguration()
    orchestration_configuration: OrchestrationConfiguration = OrchestrationConfiguration()


class RetrieveAndGenerateConfiguration(BedrockRequest):
    """Settings of a query."""

    type: Literal["KNOWLEDGE_BASE"]
    knowledge_base_configuration: KnowledgeBaseConfiguration


class QueryInput(BedrockRequest):
    """The query."""

    text: str = Field(max_length=MAX_QUERY_CHARS)


class RetrieveAndGenerateRequest(BedrockRequest):
    """A query with an answer."""

    input: QueryInput
    retrieve_and_generate_configuration: RetrieveAndGenerateConfiguration
    session_id: Annotated[str, Field(max_length=100)] | None = Field(
        default=None, description="As returned by the query before; it continues the conversation."
    )
