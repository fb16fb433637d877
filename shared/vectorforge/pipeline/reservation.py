"""The most that a question may use, before anything of it is known but its words."""

from vectorforge.config import VectorForgeConfig
from vectorforge.errors import VectorForgeError
from vectorforge.limits.settings import Claim
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.llm.types import ProviderCapability
from vectorforge.pipeline.presets import find_preset
from vectorforge.pipeline.prices import PriceList
from vectorforge.pipeline.types import QueryConfig

_PROMPT_TOKENS = 500
"""Of the presets' own prompts, which are shorter, and of what surrounds passages and messages."""
_BYTES_PER_TOKEN = 3
"""Of UTF-8; English has about four, and so have most scripts whose letters take several. Nothing is loaded to
count a claim, which is settled soon."""
_REWRITING_TOKENS = 2_500
"""Of a model that rewrites a question that follows up: see ``rewriting``."""


def query_claim(
    query: str,
    config: QueryConfig,
    *,
    is_stream: bool,
    settings: VectorForgeConfig,
    registry: LLMProviderRegistry,
    prices: PriceList,
) -> Claim:
    """What a question may use at most: its prompt's budget and its longest answer, at its model's price.

    Where neither a number of tokens nor of characters bounds the passages, they are taken to be as long as
    the settings cut them. Who quotes passages uses nothing, and a model without a price costs nothing.
    """
    provider = _provider(config, registry)
    if provider is None or ProviderCapability.EXTRACTIVE in provider.capabilities:
        return Claim(is_stream=is_stream)
    prompt_tokens = _PROMPT_TOKENS + _context_tokens(config, settings) + _tokens(query)
    texts = [message.content for message in config.history]
    prompt_tokens += sum(map(_tokens, [*texts, config.system_prompt or ""]))
    if config.conversation_id is not None:
        prompt_tokens += settings.query.history_max_tokens
    if config.rewrite and (config.history or config.conversation_id is not None):
        prompt_tokens += _REWRITING_TOKENS
    model = config.llm_model or provider.default_model
    cost = prices.estimate_cost(provider.provider_name(), model, prompt_tokens, config.max_tokens)
    return Claim(is_stream=is_stream, tokens=prompt_tokens + config.max_tokens, cost_usd=cost or 0.0)


def _provider(config: QueryConfig, registry: LLMProviderRegistry) -> BaseLLMProvider | None:
    try:
        if config.llm_provider:
            return registry.get(config.llm_provider)
        return registry.get_default() if registry.list_providers() else None
    except VectorForgeError:
        return None  # the query itself will say so


def _tokens(text: str) -> int:
    return len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN + 1


def _context_tokens(config: QueryConfig, settings: VectorForgeConfig) -> int:
    preset = find_preset(config.preset)
    if preset.max_context_tokens is not None:
        return preset.max_context_tokens
    if preset.context_chars is not None:
        return preset.context_chars // _BYTES_PER_TOKEN
    if preset.context_tokens_per_answer_token is not None:
        return config.max_tokens * preset.context_tokens_per_answer_token
    return config.top_k * settings.ingestion.chunk_size_chars // _BYTES_PER_TOKEN
