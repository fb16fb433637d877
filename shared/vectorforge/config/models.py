"""Settings of LLMs, embedding models and rerankers."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from vectorforge.config.base import Section, env


def _http_address(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise ValueError("must begin with http:// or https://")
    return value


HttpAddress = Annotated[str, AfterValidator(_http_address)]


class ModelPrice(BaseModel):
    """US dollars per million tokens of one model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    long_prompt_over: int | None = Field(default=None, ge=1)
    """Prompt tokens beyond which the two prices below apply to the whole call."""
    long_input: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    long_output: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _long_prompts_are_whole(self) -> Self:
        given = [value is not None for value in (self.long_prompt_over, self.long_input, self.long_output)]
        if any(given) and not all(given):
            raise ValueError("long_prompt_over, long_input and long_output belong together")
        return self


class VendorSettings(Section):
    """Accounts of vendors, shared by answers and embeddings."""

    openai_api_key: SecretStr | None = None
    openai_base_url: HttpAddress | None = None
    openai_client: Literal["http", "sdk"] = "http"
    """Transport: our HTTP client, or the package openai. Azure OpenAI always uses "sdk"."""
    azure_openai_endpoint: HttpAddress | None = None
    """Azure resource, e.g. https://example.openai.azure.com, called instead of OpenAI."""
    azure_openai_api_version: str = Field(default="2024-10-21", pattern=r"^[A-Za-z0-9.-]{1,40}$")
    azure_openai_api_key: SecretStr | None = None
    """Key of the resource; takes precedence over a token."""
    azure_openai_ad_token: SecretStr | None = None
    """A token of Entra ID for https://cognitiveservices.azure.com; valid for 60 to 90 minutes."""
    azure_openai_ad_token_command: str | None = None
    """Command that prints such a token; run every 5 minutes, without a shell."""
    azure_openai_deployments: dict[str, str] = Field(default_factory=dict)
    """JSON object: model -> its deployment, if the names differ."""
    google_api_key: SecretStr | None = None
    google_base_url: HttpAddress | None = None
    cohere_api_key: SecretStr | None = None
    cohere_base_url: HttpAddress | None = None
    bedrock_region: str | None = None
    """AWS region of Bedrock; unset: from the AWS SDK's chain."""
    bedrock_base_url: HttpAddress | None = None
    """Address of Bedrock's API, e.g. of a VPC endpoint; default: AWS's."""


class LLMSettings(VendorSettings):
    """LLM providers. The first one with credentials is the default."""

    default_provider: str = env("default_provider", "DEFAULT_LLM_PROVIDER", default="openai")
    default_model: str = env("default_model", "DEFAULT_LLM_MODEL", default="gpt-4o")
    """Model of the provider openai when a request names none."""
    openai_org_id: str | None = None
    anthropic_api_key: SecretStr | None = None
    anthropic_base_url: HttpAddress | None = None
    anthropic_client: Literal["http", "sdk"] = "http"
    """Transport: our HTTP client, or the package anthropic. Vertex AI always uses "sdk"."""
    vertex_project: str | None = Field(default=None, pattern=r"^[a-z0-9.:-]{1,100}$")
    """Project of Google Cloud whose Vertex AI the provider anthropic uses instead of Anthropic."""
    vertex_region: str = Field(default="global", pattern=r"^[a-z0-9-]{1,40}$")
    vertex_base_url: HttpAddress | None = None
    """Address of Vertex AI with its /v1; default: Google's."""
    vertex_access_token: SecretStr | None = None
    """Token of Google Cloud; unset: Google's library finds the credentials (extra vertex)."""
    anthropic_model: str = "claude-sonnet-4-20250514"
    ollama_base_url: HttpAddress | None = None
    """Address of an Ollama server, e.g. http://localhost:11434; setting it registers the provider."""
    ollama_model: str = "llama3.3"
    google_model: str = "gemini-2.5-flash"
    cohere_model: str = "command-a-03-2025"
    max_serve_base_url: HttpAddress | None = None
    """Address of a MAX Serve, e.g. http://localhost:8000; setting it registers the provider."""
    max_serve_model: str = "meta-llama/Llama-3.3-70B-Instruct"
    max_serve_mode: Literal["chat", "completions"] = "chat"
    """"completions": the prompt is rendered here in Llama 3.3's format."""
    bedrock_model: str | None = None
    """Id or ARN of a model or inference profile on Amazon Bedrock; setting it registers the provider."""
    llm_timeout_s: float = Field(default=60.0, gt=0, le=900)
    """Time limit of a complete answer and of a stream's first token (between tokens 10 s)."""
    llm_max_retries: int = Field(default=3, ge=0, le=10)
    model_prices: dict[str, ModelPrice] = Field(default_factory=dict)
    """JSON object: model or provider/model -> its price; overrides the published prices."""
    llm_fallbacks: list[str] = Field(default_factory=list)
    """JSON list of providers, each alone or with a model ("ollama:llama3.3"), used in this order when the
    default provider fails. Empty by default, since a provider receives the documents' text."""
    llm_circuit_failures: int = Field(default=5, ge=0, le=1000)
    """Failed calls in a row after which calls to a model are suspended; 0: never."""
    llm_circuit_open_s: float = Field(default=30.0, gt=0, le=3600)
    """Duration of the suspension; then one call tests the model."""
    extractive_answers: bool = True
    """Quote the best sentences when no model is configured."""


class EmbeddingSettings(VendorSettings):
    """Embedding providers and their default models."""

    default_provider: str = env("default_provider", "DEFAULT_EMBEDDING_PROVIDER", default="local")
    openai_embedding_model: str = "text-embedding-3-small"
    openai_embedding_dimension: int = Field(default=1536, ge=1, le=16_000)
    embedding_base_url: HttpAddress | None = None
    """Your own embeddings endpoint in OpenAI's format (provider "http")."""
    embedding_api_key: SecretStr | None = None
    embedding_model: str | None = None
    embedding_dimension: int | None = Field(default=None, ge=1, le=16_000)
    cohere_embedding_model: str = "embed-v4.0"
    cohere_embedding_dimension: int = Field(default=1536, ge=1, le=16_000)
    google_embedding_model: str = "gemini-embedding-001"
    google_embedding_dimension: int = Field(default=3072, ge=1, le=16_000)
    bedrock_embedding_model: str | None = None
    """A Titan or Cohere model on Amazon Bedrock, e.g. amazon.titan-embed-text-v2:0; setting it registers the
    provider "bedrock"."""
    bedrock_embedding_dimension: int | None = Field(default=None, ge=1, le=16_000)
    """Length of its vectors; unset: the model's default."""
    embedding_timeout_s: float = Field(default=30.0, gt=0, le=600)
    embedding_max_retries: int = Field(default=3, ge=0, le=10)
    embedding_batch_size: int = Field(default=64, ge=1, le=2048)
    """Texts per call."""
    embedding_cache_entries: int = Field(default=10_000, ge=0)
    """Vectors cached in memory; 0 disables the cache."""
    local_embedding_path: Path | None = None
    """Folder of an ONNX model for the provider "local"; unset: the bundled English model."""
    model_cache_dir: Path | None = None
    """Folder of the built local model; default: the user's cache folder."""


class RerankSettings(Section):
    """Reranker over HTTP, or a model in this process."""

    rerank_url: HttpAddress | None = None
    """Address with path; unset: no reranking by a server."""
    rerank_model_path: Path | None = None
    """Folder of an ONNX cross-encoder that reranks in this process."""
    rerank_format: Literal["cohere", "tei"] = "cohere"
    rerank_model: str | None = None
    """Required for Cohere; TEI serves one model."""
    rerank_api_key: SecretStr | None = None
    rerank_candidates: int = Field(default=32, ge=2, le=1000)
    """Chunks that are reranked."""
    rerank_timeout_s: float | None = Field(default=None, gt=0, le=60)
    """Time limit; default: 2 s over HTTP, 0.2 s in this process."""

    @property
    def timeout_s(self) -> float:
        """Time limit of reranking one query."""
        return self.rerank_timeout_s or (2.0 if self.rerank_model_path is None else 0.2)

    @model_validator(mode="after")
    def _cohere_wants_a_model(self) -> Self:
        if self.rerank_url and self.rerank_model_path:
            raise ValueError("set VECTORFORGE_RERANK_URL or VECTORFORGE_RERANK_MODEL_PATH, not both")
        if self.rerank_url and self.rerank_format == "cohere" and not self.rerank_model:
            raise ValueError("VECTORFORGE_RERANK_URL also needs VECTORFORGE_RERANK_MODEL, or the format tei")
        return self
