"""The part of a conversation in a prompt."""

from hypothesis import given
from hypothesis import strategies as st

from vectorforge.pipeline.conversation import trim_history
from vectorforge.pipeline.types import HistoryMessage
from vectorforge.tokens import estimate_tokens

MESSAGES = st.builds(
    HistoryMessage, st.sampled_from(["user", "assistant", "system"]), st.text(alphabet="ab ", max_size=80)
)


@given(st.lists(MESSAGES, max_size=12), st.integers(1, 60))
def test_trim_history_retains_latest_complete_exchanges(history: list[HistoryMessage], budget: int) -> None:
    trimmed = trim_history(history, budget, "gpt-4")
    all_messages, trimmed_messages = ([m for m in ms if m.role != "system"] for ms in (history, trimmed))
    assert [m for m in trimmed if m.role == "system"] == [m for m in history if m.role == "system"]
    assert trimmed_messages == all_messages[len(all_messages) - len(trimmed_messages) :]  # a suffix
    assert not trimmed_messages or trimmed_messages[0].role == "user"
    if trimmed_messages:
        assert sum(estimate_tokens(m.content) for m in trimmed) <= budget


def test_trim_history_within_limit_returns_all() -> None:
    history = [HistoryMessage("user", "word " * 50), HistoryMessage("assistant", "word " * 50)] * 3
    assert trim_history(history, 0, "gpt-4") == history
    assert trim_history(history, 10_000, "gpt-4") == history
    tokens = estimate_tokens(history[0].content)
    assert trim_history(history, tokens * 4, "gpt-4") == history[2:]
    assert trim_history(history, tokens * 4 - 1, "gpt-4") == history[4:]
