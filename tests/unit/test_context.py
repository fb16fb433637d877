"""The context: formats byte for byte, the budget, the template."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.rag.chunks import make_chunk as passage
from tests.support.rag.fenced import unfenced
from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.context import ContextBuilder, ContextConfig, ContextFormat
from vectorforge.pipeline.presets import RAG_QUERY, VECTORFORGE
from vectorforge.pipeline.prompts import (
    DEFAULT_SYSTEM_PROMPT,
    RAG_QUERY_SYSTEM_PROMPT,
    fence,
    render_template,
)
from vectorforge.tokens import estimate_tokens
from vectorforge.types import RetrievedChunk


def test_default_context_format_is_exact() -> (
    None
):  # C05, C08
    payload = ContextBuilder().build("why?", [passage("one"), passage("two")])
    assert payload.assembled_context == "[Source 1]\none\n---\n[Source 2]\ntwo"
    assert unfenced(payload.system_prompt) == (
        "\nYou are a helpful assistant that answers questions based on the provided context.\n"
        "Use ONLY the information in the context below to answer. If the answer cannot be\n"
        'found in the context, say "I don\'t have enough information to answer that question."\n'
        "\nDo not make up information. Always cite which source(s) you used.\n\nContext:\n"
        "[Source 1]\none\n---\n[Source 2]\ntwo\n"
    )
    assert payload.user_message == "why?"
    assert [source.chunk_index for source in payload.sources] == [0, 0]  # the payload's fifth field
    assert payload.context_token_count == payload.token_count  # C28


def test_scores_in_context_have_two_decimals() -> None:
    config = ContextConfig(include_scores=True)
    payload = ContextBuilder().build("q", [passage("one", 0.987)], config)
    assert payload.assembled_context == "[Source 1] (relevance: 0.99)\none"


def test_rag_query_context_format_is_exact() -> None:  # B-031, B-032, C05
    config = ContextConfig(
        system_prompt_template=RAG_QUERY.system_prompt,
        chunk_separator=RAG_QUERY.chunk_separator,
        format=RAG_QUERY.context_format,
        max_context_tokens=None,
    )
    payload = ContextBuilder().build("q", [passage("one"), passage("two")], config)
    assert payload.assembled_context == "[Context 1]\none\n\n[Context 2]\ntwo\n"
    assert unfenced(payload.system_prompt) == (
        "You are a helpful assistant. Use the following context to answer the user's question.\n\n"
        "Context:\n[Context 1]\none\n\n[Context 2]\ntwo\n"
    )


def test_context_without_chunks_is_empty() -> None:
    payload = ContextBuilder().build("q", [])
    assert (payload.assembled_context, payload.sources, payload.chunks_used) == ("", [], 0)


def test_context_builder_has_documented_defaults() -> None:
    config = ContextConfig()
    assert config.system_prompt_template == DEFAULT_SYSTEM_PROMPT
    assert config.max_context_tokens == 4096
    assert config.include_sources is True
    assert config.chunk_separator == "\n---\n"
    assert config.include_scores is False
    assert VECTORFORGE.context_format == config.format == ContextFormat()


def test_context_sources_follow_label_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    passages = [passage("word " * 100, index=i) for i in range(5)]
    config = ContextConfig(max_context_tokens=300)
    payload = ContextBuilder().build("q", passages, config)
    assert payload.chunks_used == 2
    assert payload.chunks_truncated == 3
    assert [s.chunk_index for s in payload.sources] == [0, 1]
    before = estimate_tokens(
        "\n---\n".join(f"[Source {i + 1}]\n{p.chunk.text}" for i, p in enumerate(passages))
    )
    assert caplog.messages == [f"Context truncated from {before} to {payload.token_count} tokens"]


def test_snippet_is_literal_and_flags_truncation() -> None:  # C10, C37
    short, long = ContextBuilder().build("q", [passage("ten chars."), passage("x" * 300, index=7)]).sources
    assert (short.snippet, short.truncated) == ("ten chars....", False)
    assert (long.snippet, long.truncated) == ("x" * 200 + "...", True)
    assert (long.document_source, long.chunk_index, long.score) == ("guide.md", 7, 0.5)
    assert (long.start_offset, long.end_offset) == (10, 310)


def test_context_without_include_sources_has_no_sources() -> None:
    payload = ContextBuilder().build("q", [passage("one")], ContextConfig(include_sources=False))
    assert payload.sources == []
    assert payload.chunks_used == 1


def test_first_chunk_over_budget_is_cut_at_sentence() -> None:  # A-053, C06
    text = "First sentence here. Second sentence here. " + "tail " * 500
    payload = ContextBuilder().build("q", [passage(text)], ContextConfig(max_context_tokens=20))
    (shortened,) = payload.used
    assert shortened.chunk.text == "First sentence here. Second sentence here."
    assert shortened.chunk.end_offset == shortened.chunk.start_offset + len(shortened.chunk.text)


@given(
    st.lists(st.text(min_size=1, max_size=400), min_size=1, max_size=12),
    st.integers(min_value=10, max_value=400),
)
def test_context_stays_in_budget_and_retains_best_chunks(
    texts: list[str], budget: int
) -> None:  # C06
    passages = [passage(text, index=i) for i, text in enumerate(texts)]
    payload = ContextBuilder().build("q", passages, ContextConfig(max_context_tokens=budget))
    assert payload.token_count <= budget
    assert payload.token_count == estimate_tokens(payload.assembled_context)
    assert payload.chunks_used >= 1
    assert [u.chunk.id for u in payload.used] == [p.chunk.id for p in passages[: payload.chunks_used]]


def counted(text: str, index: int, more: int = 0) -> RetrievedChunk:
    chunk = passage(text, index=index)
    return replace(chunk, chunk=replace(chunk.chunk, token_count=estimate_tokens(text) + more))


@given(
    st.lists(st.text(min_size=80, max_size=400), min_size=1, max_size=8),
    st.floats(min_value=0.3, max_value=1.5),
)
@example(["Rotate the signing keys every ninety days. " * 9] * 4, 0.9)
def test_context_by_counts_of_chunks_stays_in_budget(texts: list[str], share: float) -> None:
    passages = [counted(text, index) for index, text in enumerate(texts)]
    config = ContextConfig(max_context_tokens=None, model="gpt-4o")
    whole = ContextBuilder().build("q", passages, config).token_count
    budget = max(10, round(whole * share))
    payload = ContextBuilder().build("q", passages, replace(config, max_context_tokens=budget))
    assert payload.token_count <= budget
    assert payload.token_count == estimate_tokens(payload.assembled_context, "gpt-4o")


def test_credible_counts_of_chunks_replace_count_of_context() -> None:
    texts = ["Rotate the signing keys every ninety days, and revoke the old ones. " * 10] * 5
    chunks = [counted(text, index, more=3) for index, text in enumerate(texts)]
    payload = ContextBuilder().build("q", chunks)
    assert payload.token_count + 10 < payload.counted_tokens < payload.token_count + 20
    by_characters = [replace(c, chunk=replace(c.chunk, token_count=len(c.chunk.text) // 8)) for c in chunks]
    payload = ContextBuilder().build("q", by_characters)
    assert payload.counted_tokens == payload.token_count


async def test_context_build_is_awaitable() -> None:  # A-031, C24
    builder, passages = ContextBuilder(), [passage("one")]
    awaited, built = await builder.abuild("q", passages), builder.build("q", passages)
    assert unfenced(awaited.system_prompt) == unfenced(built.system_prompt)
    assert replace(awaited, system_prompt=built.system_prompt) == built


class TestTemplates:
    def test_braces_of_custom_template_are_preserved(self) -> None:  # A-049, C40
        template = 'Answer as {"answer": {"text": "..."}} from {context}'
        assert render_template(template, "CTX") == 'Answer as {"answer": {"text": "..."}} from CTX'

    def test_doubled_braces_in_format_string_are_unescaped(self) -> None:  # C40
        assert render_template("{{json}} {context}", "CTX") == "{json} CTX"

    def test_braces_of_context_are_preserved(self) -> None:
        assert render_template("{context}", "{x} {context} {{y}}") == "{x} {context} {{y}}"

    def test_attribute_access_in_template_is_not_evaluated(self) -> None:
        template = "{context.__class__} {context}"
        assert render_template(template, "CTX") == "{context.__class__} CTX"

    def test_missing_placeholder_is_rejected(self) -> None:  # C08
        with pytest.raises(InvalidInputError, match=r"\{context\}") as caught:
            render_template("no placeholder", "CTX")
        assert caught.value.field == "system_prompt"


def test_rag_query_prompt_ends_with_context() -> None:  # B-032, C08
    assert RAG_QUERY_SYSTEM_PROMPT.endswith("\n\nContext:\n{context}")


def test_prompt_fences_are_unique() -> None:
    """A document that knew the number could close the fence."""
    fences = {fence("a passage") for _ in range(100)}
    assert len(fences) == 100


class Counting(ContextBuilder):
    """Records what is truncated."""

    def __init__(self) -> None:
        super().__init__()
        self.truncated: list[tuple[str, str]] = []

    def _truncate_context(self, context: str, max_tokens: int, **options: Any) -> str:
        shortened = super()._truncate_context(context, max_tokens, **options)
        self.truncated.append((context, shortened))
        return shortened


def test_truncate_context_matches_builder_truncation() -> None:
    builder = Counting()
    passages = [passage("word " * 100), passage("other " * 100)]
    payload = builder.build("q", passages, ContextConfig(max_context_tokens=150))
    ((whole, shortened),) = builder.truncated
    assert payload.assembled_context == shortened
    assert whole.startswith(shortened + "\n---\n[Source 2]")
    assert payload.chunks_used == 1


def test_truncate_context_of_plain_text_ends_at_sentence() -> None:
    text = "One sentence. Another one follows here. The last one is too much for it."
    shortened = ContextBuilder()._truncate_context(text, estimate_tokens(text) - 4)
    assert shortened == "One sentence. Another one follows here."
    assert ContextBuilder()._truncate_context(text, 1_000) == text
