"""The text that a follow-up query is searched for, with a scripted model and without one."""

import time

import pytest

from tests.support.vendors.scripted_llm import ScriptedLLM
from tests.unit.query_setup import COLLECTION, Setup
from vectorforge.errors import LLMCircuitOpenError, LLMTimeoutError
from vectorforge.llm.providers.extractive import ExtractiveProvider
from vectorforge.pipeline.context import ContextBuilder
from vectorforge.pipeline.conversation import REWRITING_PROMPT, QueryRewriter
from vectorforge.pipeline.presets import history_of
from vectorforge.pipeline.rag import QueryService
from vectorforge.pipeline.types import MetaEvent, QueryConfig, RewriteMode

HISTORY = history_of([("Where do I buy a copper kettle?", "In the shop.")])
FOLLOW_UP, COMPLETE = "How heavy is it?", "How long does a copper kettle last?"
REWRITTEN = "How heavy is the copper kettle?"
EXPANDED = "How heavy is it? buy copper kettle"


async def searched(setup: Setup, query: str, mode: RewriteMode = "auto") -> tuple[str, int]:
    """Return the text of the search and the number of calls for rewriting."""
    result = await setup.service.query(query, COLLECTION, QueryConfig(history=HISTORY, rewrite=mode))
    (text,) = [call["query"] for call in setup.retriever.calls]
    assert result.rewritten_query == (None if text == query else text)
    return text, sum(messages[0]["content"] == REWRITING_PROMPT for messages, _ in setup.llm.calls)


@pytest.mark.parametrize(
    ("query", "mode", "expected"),
    [
        (FOLLOW_UP, "auto", (REWRITTEN, 1)),
        (COMPLETE, "auto", (f"{COMPLETE} buy", 0)),
        (COMPLETE, True, (REWRITTEN, 1)),
        (FOLLOW_UP, False, (FOLLOW_UP, 0)),
    ],
)
async def test_model_is_called_by_mode_and_only_if_query_does_not_stand_alone(
    query: str, mode: RewriteMode, expected: tuple[str, int]
) -> None:
    assert await searched(Setup(llm=ScriptedLLM([REWRITTEN])), query, mode) == expected


async def test_new_subject_is_searched_by_itself_and_by_words_of_earlier_turns_with_less_weight() -> None:
    setup = Setup(llm=ScriptedLLM([REWRITTEN]))
    query = "Who painted the Mona Lisa?"
    result = await setup.service.query(query, COLLECTION, QueryConfig(history=HISTORY))
    (request,) = setup.retriever.requests
    assert (request.query, request.words, request.context) == (query, query, "buy copper kettle shop")
    assert result.rewritten_query == f"{query} buy copper kettle"
    assert len(setup.llm.calls) == 1  # the answer


async def test_rewriting_call_has_a_token_limit_and_is_reported_before_the_answer() -> None:
    setup = Setup(llm=ScriptedLLM([REWRITTEN]))
    meta = (await setup.events(FOLLOW_UP, QueryConfig(history=HISTORY)))[0]
    assert isinstance(meta, MetaEvent)
    assert meta.rewritten_query == REWRITTEN
    request = setup.llm.calls[0][1]
    assert (request.temperature, request.max_tokens) == (0.0, 128)


@pytest.mark.parametrize("text", ["", "I cannot help with that.", "kettle " * 100])
async def test_useless_text_of_model_is_replaced_by_words_of_earlier_turns(text: str) -> None:
    assert await searched(Setup(llm=ScriptedLLM([text])), FOLLOW_UP) == (EXPANDED, 1)


@pytest.mark.parametrize(
    ("query", "text", "is_kept"),
    [
        ("How heavy was it in 1946?", "How heavy was the copper kettle?", False),
        ("How heavy was it in 1946?", "How heavy was the copper kettle in 1946?", True),
        ("How long does it take to Oslo?", "How long does delivery of the kettle take?", False),
        ("Is it heavier than that of Oslo?", "Is the kettle heavier than the kettle of Oslo?", True),
        ("wie schwer ist er denn?", "How heavy is the copper kettle?", False),
        ("Thanks. Tell me how heavy it is", "How heavy is the copper kettle?", True),
        ("And Oslo?", "Where do I buy a copper kettle in Oslo?", True),
    ],
)
async def test_rewrite_without_name_number_or_language_of_the_query_is_not_used(
    query: str, text: str, is_kept: bool
) -> None:
    expected = text if is_kept else f"{query} buy copper kettle"
    assert await searched(Setup(llm=ScriptedLLM([text])), query, True) == (expected, 1)


async def test_slow_model_is_given_up_after_the_budget() -> None:
    setup = Setup(llm=ScriptedLLM([REWRITTEN], delay_s=0.5))
    rewriter = QueryRewriter(setup.registry, timeout_s=0.05)
    setup.service = QueryService(
        setup.retriever, ContextBuilder(), setup.registry, setup.log, rewriter=rewriter
    )
    started = time.perf_counter()
    assert (await searched(setup, FOLLOW_UP))[0] == EXPANDED
    assert time.perf_counter() - started < 1.0  # the answer took half a second


async def test_model_with_open_circuit_breaker_is_not_called_for_rewriting() -> None:
    setup = Setup(llm=ScriptedLLM([REWRITTEN]))
    breaker = setup.registry.breakers.find("scripted", "scripted-1")
    for _ in range(5):
        with pytest.raises(LLMTimeoutError), breaker.call():
            raise LLMTimeoutError("down")
    with pytest.raises(LLMCircuitOpenError):
        await searched(setup, FOLLOW_UP)
    assert [call["query"] for call in setup.retriever.calls] == [EXPANDED]
    assert setup.llm.calls == []


async def test_quoted_answer_is_chosen_by_the_expanded_query() -> None:
    setup = Setup()
    setup.registry.register(ExtractiveProvider())
    history = history_of([("When does water boil?", "At 100 degrees.")])
    config = QueryConfig(history=history, llm_provider="extractive")
    assert "Water boils" in (await setup.service.query("And at how many degrees?", COLLECTION, config)).answer
