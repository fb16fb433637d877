"""Requests and results of Bedrock's Knowledge Bases, and their filters as native filters."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from vectorforge.api.schemas import RequestBody
from vectorforge.errors import FilterError

_RESERVED: Final = "x-amz-bedrock-"
_MOST_KEY_CHARS: Final = 100
_LEAST_PARTS: Final = 2
_LAST_CHARACTER: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)


def native_filter(raw: object, where: str) -> dict[str, Any]:
    """Translate a ``RetrievalFilter``, JSON of bounded nesting; ``where`` is its field, for errors.

    Raises:
        FilterError: It is malformed or cannot be expressed; the text names the operator.
    """
    if not isinstance(raw, Mapping) or len(raw) != 1:
        raise FilterError(f"{where} must be an object with exactly one operator.", field=where)
    ((name, operand),) = raw.items()
    inside = f"{where}.{str(name)[:_MOST_KEY_CHARS]}"
    if name in _COMPOUND:
        if not isinstance(operand, list) or len(operand) < _LEAST_PARTS:
            raise FilterError(f"{inside} must be a list of at least {_LEAST_PARTS} filters.", field=inside)
        parts = [native_filter(part, f"{inside}[{n}]") for n, part in enumerate(operand)]
        return {_COMPOUND[name]: parts}
    build = _OPERATORS.get(name)
    if build is None:
        known = ", ".join([*_OPERATORS, *_COMPOUND])
        raise FilterError(f"{inside} is not a supported operator; supported: {known}.", field=inside)
    if not isinstance(operand, Mapping) or operand.keys() != {"key", "value"}:
        raise FilterError(f"{inside} must be an object with key and value.", field=inside)
    return {_key(operand["key"], inside): build(operand["value"], inside)}


def _key(key: object, inside: str) -> str:
    if not isinstance(key, str) or not 1 <= len(key) <= _MOST_KEY_CHARS or key.startswith("$"):
        raise FilterError(
            f"{inside}.key must be a string of 1 to {_MOST_KEY_CHARS} characters that does not begin with $.",
            field=f"{inside}.key",
        )
    if key.startswith(_RESERVED):
        raise FilterError(f"{inside}.key: attributes of Bedrock's own cannot be filtered.", field=inside)
    return key


def _plain(operator: str) -> "_Build":
    return lambda value, inside: {operator: value}


def _of_text(value: object, inside: str) -> str:
    if not isinstance(value, str) or not value:
        raise FilterError(f"{inside}.value must be a string that is not empty.", field=f"{inside}.value")
    return value


def _starts_with(value: object, inside: str) -> dict[str, Any]:
    """Return a range, since strings compare by code point."""
    prefix = _of_text(value, inside)
    above = prefix.rstrip(chr(_LAST_CHARACTER))
    if not above:
        return {"$gte": prefix}
    following = ord(above[-1]) + 1
    last = chr(_SURROGATES.stop if following in _SURROGATES else following)
    return {"$gte": prefix, "$lt": above[:-1] + last}


_Build = Callable[[object, str], dict[str, Any]]

_OPERATORS: Final[Mapping[str, _Build]] = {
    "equals": _plain("$eq"),
    "notEquals": _plain("$ne"),
    "greaterThan": _plain("$gt"),
    "greaterThanOrEquals": _plain("$gte"),
    "lessThan": _plain("$lt"),
    "lessThanOrEquals": _plain("$lte"),
    "in": _plain("$in"),
    "notIn": _plain("$nin"),
    "startsWith": _starts_with,
    "stringContains": lambda value, inside: {"$contains": _of_text(value, inside)},
    "listContains": _plain("$eq"),  # also an element of a list; $contains would match parts of strings
}
_COMPOUND: Final[Mapping[str, str]] = {"andAll": "$and", "orAll": "$or"}


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
