"""The extractive provider: verbatim quotes with citations, and a refusal without relevant sources."""

import re
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.unit.extractive_answers import BILLING, DANUBE, RHINE, answer, quotations, sources
from vectorforge.llm.providers.extractive import NO_ANSWER, ExtractiveProvider
from vectorforge.llm.types import LLMRequestConfig, Message, ProviderCapability, StreamEnd, TextDelta


async def test_extractive_answer_quotes_and_cites_source() -> None:
    text = await answer("How long is the Rhine?", BILLING, RHINE, DANUBE)
    assert "It is about 1,230 km long. [Source 2]" in text


@pytest.mark.parametrize(
    ("question", "statement"),
    [
        ("Πού κοιμάται η γάτα;", "Η γάτα κοιμάται στο κρεβάτι."),
        ("Որտե՞ղ է քնում կատուն։", "Կատուն քնում է մահճակալին։"),
    ],
)
async def test_question_is_not_quoted_in_scripts_with_marks_of_their_own(
    question: str, statement: str
) -> None:
    asked_otherwise = question.replace("η γάτα", "η μαύρη γάτα").replace("կատուն", "սև կատուն")
    text = await answer(question, f"{asked_otherwise} {statement}")
    assert text == f"{statement} [Source 1]"


@pytest.mark.parametrize(
    "question",
    ["How long is the Rhine?", "Who measured the Rhine in 1932?", "Which river flows through ten countries?"],
)
async def test_quotation_appears_verbatim_in_cited_source(question: str) -> None:
    texts = (RHINE, DANUBE, BILLING)
    quoted = quotations(await answer(question, *texts))
    assert 1 <= len(quoted) <= 3
    for quotation, number in quoted:
        assert quotation in texts[number - 1]
    assert sum(len(quotation) for quotation, _ in quoted) <= 420


@pytest.mark.parametrize(
    "question",
    ["Which enzyme cuts plasmids?", "", "?!", "is it the", "Wie hoch ist der Mount Everest?"],
)
async def test_unrelated_sources_yield_no_answer_message(question: str) -> None:
    messages = [{"role": "user", "content": question or " "}]
    response = await ExtractiveProvider().generate(messages, sources=sources(RHINE, BILLING))
    assert response.content == NO_ANSWER == "I don't have enough information to answer that question."


@pytest.mark.parametrize(
    ("query", "is_answered"),
    [
        ("How long does a key stay valid?", True),
        ("How long does an LDAP key stay valid?", False),
        ("How long does an API key stay valid?", True),
    ],
)
async def test_query_about_a_missing_technical_term_yields_no_answer(query: str, is_answered: bool) -> None:
    async def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0], *([0.6, 0.8] for _ in texts[1:])]  # cosine 0.6

    text = "A key is valid for 90 days. APIs check it."
    assert (await answer(query, text, provider=ExtractiveProvider(embed=embed)) != NO_ANSWER) is is_answered


async def test_missing_sources_yield_no_answer_message() -> None:
    assert await answer("How long is the Rhine?") == NO_ANSWER
    assert await answer("How long is the Rhine?", "", "   \n") == NO_ANSWER


async def test_last_user_message_is_the_query() -> None:
    messages = [
        {"role": "system", "content": "When are invoices due?"},
        {"role": "user", "content": "When are invoices due?"},
        {"role": "assistant", "content": "Within thirty days."},
        {"role": "user", "content": "How long is the Rhine?"},
    ]
    response = await ExtractiveProvider().generate(messages, sources=sources(BILLING, RHINE))
    assert "1,230 km" in response.content
    assert "Invoices" not in response.content


async def test_streamed_extractive_answer_equals_whole_answer() -> None:
    provider = ExtractiveProvider()
    messages = [{"role": "user", "content": "How long is the Rhine?"}]
    whole = await provider.generate(messages, sources=sources(RHINE, DANUBE))
    events = [event async for event in provider.stream_events(messages, sources=sources(RHINE, DANUBE))]
    *deltas, end = events
    assert isinstance(end, StreamEnd)
    texts = [event.text for event in deltas if isinstance(event, TextDelta)]
    assert len(texts) == len(deltas) >= 2
    assert "".join(texts) == whole.content == end.response.content


async def test_extractive_response_names_own_model_and_counts_no_prompt_tokens() -> None:
    messages = [{"role": "user", "content": "How long is the Rhine?"}]
    response = await ExtractiveProvider().generate(messages, sources=sources(RHINE))
    assert (response.provider, response.model) == ("extractive", "extractive-v1")
    assert response.prompt_tokens == 0
    assert response.completion_tokens > 10
    assert response.metadata["extractive"] is True
    assert response.metadata["finish_reason"] == "stop"


def test_extractive_answer_loads_no_token_table() -> None:
    code = (
        "import asyncio, sys\n"
        "from vectorforge.llm.providers.extractive import ExtractiveProvider\n"
        "from vectorforge.llm.types import GroundingSource\n"
        "sources = [GroundingSource(1, '[1]', 'The Rhine is 1,230 km long.', 0.9)]\n"
        "messages = [{'role': 'user', 'content': 'How long is the Rhine?'}]\n"
        "response = asyncio.run(ExtractiveProvider().generate(messages, sources=sources))\n"
        "assert '1,230 km' in response.content\n"
        "assert 'tiktoken' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("max_tokens", [1, 5, 12, 20])
async def test_answer_beyond_max_tokens_is_cut(max_tokens: int) -> None:
    messages: list[Message] = [{"role": "user", "content": "Where does the Rhine rise, and how long is it?"}]
    whole = await ExtractiveProvider().generate(messages, sources=sources(RHINE))
    config = LLMRequestConfig(model="extractive-v1", max_tokens=max_tokens)
    cut = await ExtractiveProvider().generate(messages, config, sources=sources(RHINE))
    assert 0 < cut.completion_tokens <= max_tokens < whole.completion_tokens
    assert whole.content.startswith(cut.content)
    assert cut.metadata["finish_reason"] == "length"
    if "[" in cut.content:  # else not even the first sentence fits
        assert cut.content.endswith("[Source 1]")


async def test_provider_info_reports_extractive_capability() -> None:
    provider = ExtractiveProvider()
    assert ProviderCapability.EXTRACTIVE in provider.info().capabilities
    assert await provider.list_models() == ["extractive-v1"]
    assert await provider.validate_credentials()


async def test_citation_labels_match_source_labels() -> None:
    messages = [{"role": "user", "content": "How long is the Rhine?"}]
    response = await ExtractiveProvider().generate(messages, sources=sources(RHINE, label="[Context {}]"))
    assert "It is about 1,230 km long. [Context 1]" in response.content


async def test_text_resembling_citation_is_not_quoted() -> None:
    forged = "The Rhine is 9,999 km long [Source 1]. The Rhine is 8,888 km long according to [2] and others."
    text = await answer("How long is the Rhine?", BILLING, forged, RHINE)
    assert "9,999" not in text
    assert "8,888" not in text
    assert {number for _, number in quotations(text)} <= {2, 3}


async def test_duplicate_sentence_is_quoted_once_from_better_source() -> None:
    text = await answer("How long is the Rhine?", RHINE, RHINE)
    assert text.count("1,230") == 1
    assert "[Source 2]" not in text


async def test_sources_that_disagree_are_both_quoted() -> None:
    one, other = (f"{RHINE} The backup of the lock's log is kept for {days} days." for days in (14, 7))
    text = await answer("For how many days is the backup of the lock's log kept?", one, other)
    assert quotations(text)[:2] == [
        ("The backup of the lock's log is kept for 14 days.", 1),
        ("The backup of the lock's log is kept for 7 days.", 2),
    ]


async def test_best_sentence_is_first() -> None:
    text = "The pump was built in Ulm in 1954. The pump was repaired in Ulm in 1987."
    response = await answer("When was the pump repaired in Ulm?", text, BILLING, RHINE)
    assert response.startswith("The pump was repaired in Ulm in 1987. [Source 1]")


async def test_steps_stay_together_under_their_lead_in() -> None:
    text = (
        "Oil the pump:\n\n1. Close the *valve*. Wait.\n2. Remove the lid.\n3. Add oil.\n\nThe pump is blue."
    )
    expected = (
        "Oil the pump: [Source 1]\n1. Close the valve. [Source 1] Wait. [Source 1]\n"
        "2. Remove the lid. [Source 1]\n3. Add oil. [Source 1]"
    )
    assert (await answer("How do I oil the pump?", text)).startswith(expected)
    alone = await answer("When is the lid removed?", text)
    assert alone.startswith("Oil the pump:\nRemove the lid. [Source 1]")
    long = text.replace(". Wait.", f"{' or open it' * 40}.").replace("oil.", f"oil{' and more' * 40}.")
    text = await answer("How do I remove the lid?", long)
    assert text.startswith("Oil the pump:\nRemove the lid. [Source 1]")


async def test_model_of_a_request_is_reported_as_dropped() -> None:
    message: list[Message] = [{"role": "user", "content": "Where does the Rhine rise?"}]
    for model, expected in (("gpt-9", ["model"]), ("extractive-v1", None)):
        provider, config = ExtractiveProvider(), LLMRequestConfig(model=model)
        whole = await provider.generate(message, config=config, sources=sources(RHINE))
        assert whole.metadata.get("dropped_parameters") == expected


RENEWAL = "{}\n\n1. Aprite il sito.\n2. Scrivete il nome.\n3. Ritirate la tessera."


@pytest.mark.parametrize("heading", ["## Rinnovare la tessera", "Per rinnovare la tessera:"])
async def test_query_with_the_words_above_the_steps_is_about_a_procedure(heading: str) -> None:
    text = await answer("come rinnovo la tessera?", RENEWAL.format(heading), BILLING)
    assert re.findall(r"(?m)^\d\.", text) == ["1.", "2.", "3."]


async def test_further_steps_keep_their_order() -> None:
    steps = "1. Carry water to the pump.\n2. Call us.\n3. Carry water to the pump of the house."
    lead = "The water is in the pump of the house in Ulm."
    text = await answer("Where is water in the pump of the house?", f"{lead}\n\n{steps}")
    assert 0 < text.find("1. Carry") < text.find("3. Carry")


@pytest.mark.parametrize(
    "faq",
    [
        "**What does the blinking red light mean?**\nThe tank is empty.",
        "**What does the blinking red light mean?**\n\nThe tank is empty.",
        "What does the blinking red light mean? The tank is empty.",
    ],
)
async def test_answer_below_a_question_with_the_words_of_the_query_is_first(faq: str) -> None:
    other = "## Cleaning\n\n1. Fill it.\n2. Wait until the light turns green."
    assert (await answer("red light blinking", f"{other}\n\n{faq}")).startswith("The tank is empty.")


async def test_steps_are_quoted_below_the_question_above_them() -> None:
    text = "# Lamp X\n\n**How do I clean it?**\n\n1. Fill the tank.\n2. Clean it."
    assert (await answer("how do I clean it", text)).startswith("How do I clean it?\n1. Fill the tank. [")
