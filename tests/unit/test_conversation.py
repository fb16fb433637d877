"""What of a conversation gets into a prompt."""

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
    kept = trim_history(history, budget, "gpt-4")
    said, kept_said = ([m for m in ms if m.role != "system"] for ms in (history, kept))
    assert [m for m in kept if m.role == "system"] == [m for m in history if m.role == "system"]
    assert kept_said == said[len(said) - len(kept_said) :]  # a suffix
    assert not kept_said or kept_said[0].role == "user"
    if kept_said:
        assert sum(estimate_tokens(m.content) for m in kept) <= budget


def test_trim_history_within_limit_returns_all() -> None:
    history = [HistoryMessage("user", "word " * 50), HistoryMessage("assistant", "word " * 50)] * 3
    assert trim_history(history, 0, "gpt-4") == history
    assert trim_history(history, 10_000, "gpt-4") == history
    tokens = estimate_tokens(history[0].content)
    assert trim_history(history, tokens * 4, "gpt-4") == history[2:]
    assert trim_history(history, tokens * 4 - 1, "gpt-4") == history[4:]
