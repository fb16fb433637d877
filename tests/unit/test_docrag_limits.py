"""Limits of DocRag's preset: exchanges, lines of context, defaults."""

from typing import Any

from vectorforge.docrag.splitter import RecursiveSplitter
from vectorforge.docrag.store import as_stored, grouped
from vectorforge.pipeline.presets import DOCRAG, last_exchanges, trim_context_to_token_limit
from vectorforge.pipeline.types import (
    HistoryMessage,
)
from vectorforge.tokens import estimate_tokens


def test_last_exchanges_skip_messages_outside_exchanges() -> None:  # D-019
    messages = [
        HistoryMessage("assistant", "Hello!"),
        HistoryMessage("system", "Obey."),
        HistoryMessage("user", "One?"),
        HistoryMessage("user", "Two?"),
        HistoryMessage("assistant", "Yes."),
    ]
    assert last_exchanges(messages) == ["Previous Q: One?", "Previous Q: Two?\nPrevious A: Yes...."]


def test_trim_context_drops_lines_from_start_to_fit_limit() -> None:  # D-022
    text = "\n".join(f"line {n} of the text" for n in range(100))
    trimmed = trim_context_to_token_limit(text, max_tokens=50)
    assert text.endswith("\n" + trimmed)
    assert estimate_tokens(trimmed, "gpt-4o") <= 50
    longer = text[len(text) - len(trimmed) - len("line 89 of the text\n") :]
    assert estimate_tokens(longer, "gpt-4o") > 50
    assert trim_context_to_token_limit(text) == text
    assert trim_context_to_token_limit("word " * 9000, max_tokens=10) == ""


def test_docrag_config_has_documented_defaults() -> None:  # C03, C04, C12, D-017, D-018, D-022
    config = DOCRAG.config()
    assert (config.top_k, config.min_score, config.temperature, config.max_tokens) == (5, None, 0.3, 1000)
    assert (config.top_p, DOCRAG.max_context_tokens) == (None, 4000)
    assert DOCRAG.config(min_score=None, top_k=9).top_k == 9


def test_characters_without_width_are_removed_from_added_documents() -> None:
    sentence = "The em\ufeffploy\u00adee moved the whole warehouse within two weeks of May."
    documents: list[dict[str, Any]] = [
        {"content": sentence, "source_url": "a", "chunk_index": 0},
        {"content": sentence, "source_url": "a"},
    ]
    [group], _ = grouped(documents)
    stored = as_stored(group, RecursiveSplitter())
    expected = [sentence.replace("\ufeff", "").replace("\u00ad", "")] * 2
    assert [chunk.text for chunk in stored.chunks or ()] == expected
