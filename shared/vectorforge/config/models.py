"""Settings of models: those that write answers, those that make vectors, those that order passages."""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from vectorforge.config.sources import Section, env


class ModelPrice(BaseModel):
    """US dollars per million tokens of one model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    long_prompt_over: int | None = Field(default=None, ge=1)
    """Prompt tokens beyond which the whole call has the two prices below."""
    long_input: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    long_output: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _long_prompts_are_whole(self) -> Self:
        given = [value is not None for value in (self.long_prompt_over, self.long_input, self.long_output)]
        if any(given) and not all(given):
            raise ValueError("long_prompt_over, long_input and long_output belong together")
        return self

    def rates(self, prompt_tokens: int) -> tuple[float, float]:
        """The price of prompt and completion, for a call with a prompt of this length."""
        if (
            self.long_input is None
            or self.long_output is None
            or prompt_tokens <= (self.long_prompt_over or 0)
        ):
            return self.input, self.output
        return self.long_input, self.long_output


class OpenAISettings(Section):
    """OpenAI, or a resource of Azure OpenAI: what answers and embeddings share."""

    openai_api_key: SecretStr | None = None
    openai_base_url: str | None = None
    openai_client: Literal["http", "sdk"] = "http"
    """What requests go over: our HTTP client, or the package openai. Azure OpenAI is always "sdk"."""
    azure_openai_endpoint: str | None = Field(default=None, pattern=r"^https?://")
    """A resource, such as https://example.openai.azure.com: the provider openai asks it instead of OpenAI."""
    azure_openai_api_version: str = Field(default="2024-10-21", pattern=r"^[A-Za-z0-9.-]{1,40}$")
    azure_openai_api_key: SecretStr | None = None
    """The resource's key; it goes before a token."""
    azure_openai_ad_token: SecretStr | None = None
    """A token of Entra ID for https://cognitiveservices.azure.com; it ends after 60 to 90 minutes."""
    azure_openai_ad_token_command: str | None = None
    """Prints such a token; run every 5 minutes, without a shell."""
    azure_openai_deployments: dict[str, str] = Field(default_factory=dict)
    """JSON object: model -> the deployment that serves it, where they have different names."""


class LLMSettings(OpenAISettings):
    """Which model writes the answers. The first provider with credentials is the default."""

    default_provider: str = env("default_provider", "DEFAULT_LLM_PROVIDER", default="openai")
    default_model: str = env("default_model", "DEFAULT_LLM_MODEL", default="gpt-4o")
    """Model of the OpenAI-shaped provider when a request names none."""
    openai_org_id: str | None = None
    anthropic_api_key: SecretStr | None = None
    anthropic_base_url: str | None = None
    anthropic_client: Literal["http", "sdk"] = "http"
    """What requests go over: our HTTP client, or the package anthropic. Vertex AI is always "sdk"."""
    vertex_project: str | None = Field(default=None, pattern=r"^[a-z0-9.:-]{1,100}$")
    """A project of Google Cloud: the provider anthropic asks its Vertex AI instead of Anthropic."""
    vertex_region: str = Field(default="global", pattern=r"^[a-z0-9-]{1,40}$")
    vertex_base_url: str | None = Field(default=None, pattern=r"^https?://")
    """Address of Vertex AI when it is not Google's own, with its /v1."""
    vertex_access_token: SecretStr | None = None
    """A token of Google Cloud; unset: Google's own library finds the credentials (extra vertex)."""
    anthropic_model: str = "claude-sonnet-4-20250514"
    ollama_base_url: str | None = None
    """Address of an Ollama server, e.g. http://localhost:11434; setting it registers the provider."""
    ollama_model: str = "llama3.3"
    google_api_key: SecretStr | None = None
    google_base_url: str | None = None
    google_model: str = "gemini-2.5-flash"
    cohere_api_key: SecretStr | None = None
    cohere_base_url: str | None = None
    cohere_model: str = "command-a-03-2025"
    max_serve_base_url: str | None = None
    """Address of a MAX Serve, e.g. http://localhost:8000; setting it registers the provider."""
    max_serve_model: str = "meta-llama/Llama-3.3-70B-Instruct"
    max_serve_mode: Literal["chat", "completions"] = "chat"
    """"completions": the prompt is made here, in Llama 3.3's format."""
    bedrock_model: str | None = None
    """Id or ARN of a model or inference profile on Amazon Bedrock; setting it registers the provider."""
    bedrock_region: str | None = None
    """AWS region of Bedrock; unset: as the AWS SDK finds it."""
    bedrock_base_url: str | None = None
    """Address of Bedrock's API when it is not AWS's own, such as a VPC endpoint's."""
    llm_timeout_s: float = Field(default=60.0, gt=0, le=900)
    """Longest wait for a complete answer, and for a stream's first token (between tokens at most 10 s)."""
    llm_max_retries: int = Field(default=3, ge=0, le=10)
    model_prices: dict[str, ModelPrice] = Field(default_factory=dict)
    """JSON object: model, or provider/model -> its price; they go before the published ones."""
    llm_fallbacks: list[str] = Field(default_factory=list)
    """JSON list of providers, each alone or with a model ("ollama:llama3.3"): who writes, in this order, when
    the default provider does not. Empty: nobody, since the documents' text goes to whoever writes."""
    llm_circuit_failures: int = Field(default=5, ge=0, le=1000)
    """Failed calls in a row after which calls to a model are suspended; 0: never."""
    llm_circuit_open_s: float = Field(default=30.0, gt=0, le=3600)
    """For how long; then one call tries it again."""
    extractive_answers: bool = True
    """Answer by quoting the best sentences when no model is configured."""


class EmbeddingSettings(OpenAISettings):
    """Which model turns text into vectors, for collections that do not say."""

    default_provider: str = env("default_provider", "DEFAULT_EMBEDDING_PROVIDER", default="local")
    openai_embedding_model: str = "text-embedding-3-small"
    openai_embedding_dimension: int = Field(default=1536, ge=1, le=16_000)
    embedding_base_url: str | None = None
    """An OpenAI-shaped embeddings endpoint of your own (provider name "http")."""
    embedding_api_key: SecretStr | None = None
    embedding_model: str | None = None
    embedding_dimension: int | None = Field(default=None, ge=1, le=16_000)
    cohere_api_key: SecretStr | None = None
    cohere_base_url: str | None = None
    cohere_embedding_model: str = "embed-v4.0"
    cohere_embedding_dimension: int = Field(default=1536, ge=1, le=16_000)
    google_api_key: SecretStr | None = None
    google_base_url: str | None = None
    google_embedding_model: str = "gemini-embedding-001"
    google_embedding_dimension: int = Field(default=3072, ge=1, le=16_000)
    bedrock_embedding_model: str | None = None
    """A Titan or Cohere model on Amazon Bedrock, e.g. amazon.titan-embed-text-v2:0; setting it registers the
    provider "bedrock"."""
    bedrock_embedding_dimension: int | None = Field(default=None, ge=1, le=16_000)
    """Length of its vectors; unset: the model's own."""
    bedrock_region: str | None = None
    bedrock_base_url: str | None = None
    embedding_timeout_s: float = Field(default=30.0, gt=0, le=600)
    embedding_max_retries: int = Field(default=3, ge=0, le=10)
    embedding_batch_size: int = Field(default=64, ge=1, le=2048)
    """Texts sent in one call."""
    embedding_cache_entries: int = Field(default=10_000, ge=0)
    """Vectors kept in memory; 0 switches the cache off."""
    model_cache_dir: Path | None = None
    """Where the local model is built once; default: the user's cache folder."""


class RerankSettings(Section):
    """A model that orders passages anew, behind HTTP."""

    rerank_url: str | None = Field(default=None, pattern=r"^https?://")
    """What is posted to, with its path; unset: nothing is reranked."""
    rerank_format: Literal["cohere", "tei"] = "cohere"
    rerank_model: str | None = None
    """Cohere's wants one; TEI serves one."""
    rerank_api_key: SecretStr | None = None
    rerank_candidates: int = Field(default=32, ge=2, le=1000)
    """Passages it looks at."""
    rerank_timeout_s: float = Field(default=2.0, gt=0, le=60)

    @model_validator(mode="after")
    def _cohere_wants_a_model(self) -> Self:
        if self.rerank_url and self.rerank_format == "cohere" and not self.rerank_model:
            raise ValueError("VECTORFORGE_RERANK_URL also needs VECTORFORGE_RERANK_MODEL, or the format tei")
        return self
