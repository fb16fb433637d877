"""The extractive provider: verbatim quotes with citations, and a refusal without relevant sources."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.errors import EmbeddingError
from vectorforge.llm.providers.extractive import NO_ANSWER, ExtractiveProvider
from vectorforge.llm.types import GroundingSource, ProviderCapability, StreamEnd, TextDelta

RHINE = (
    "The Rhine rises in the Swiss Alps and reaches the North Sea in the Netherlands. "
    "It is about 1,230 km long. Dr. Lelek, who measured it in 1932, made a typing error. "
    "Barges carry coal and ore upstream."
)
DANUBE = (
    "The Danube flows through ten countries, more than any other river. Its source is in the Black Forest. "
    "The river ends in the Black Sea."
)
BILLING = "Invoices are due within thirty days. Late payments bear interest of five percent a year."


def sources(*texts: str, label: str = "[Source {}]") -> list[GroundingSource]:
    return [
        GroundingSource(number=n, label=label.format(n), text=text, score=1 / n)
        for n, text in enumerate(texts, start=1)
    ]


async def answer(question: str, *texts: str, provider: ExtractiveProvider | None = None) -> str:
    provider = provider or ExtractiveProvider()
    return (await provider.generate([{"role": "user", "content": question}], sources=sources(*texts))).content


def quotations(text: str) -> list[tuple[str, int]]:
    """Return (quotation, number of its source)."""
    return [
        (quote.strip(), int(number))
        for quote, number in re.findall(r"(.+?)\s\[Source (\d+)\]", text, re.DOTALL)
    ]


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
    assert alone.startswith("Remove the lid. [Source 1]")
    long = text.replace(". Wait.", f"{' or open it' * 40}.").replace("oil.", f"oil{' and more' * 40}.")
    assert (await answer("How do I remove the lid?", long)).startswith("Remove the lid. [Source 1]")


THREE_LAYERS = "Three layers isolate tenants:\n\n1. Code.\n2. Statements.\n3. The database.\n"


async def test_further_lead_in_is_quoted_with_its_list() -> None:
    others = "How tenants are isolated is described in layers."
    text = await answer("How are tenants isolated in layers?", others, THREE_LAYERS)
    lead = "Three layers isolate tenants: [Source 2]"
    layers = "1. Code. [Source 2]\n2. Statements. [Source 2]\n3. The database. [Source 2]"
    assert text == f"{others} [Source 1] {lead}\n{layers}"


async def test_further_lead_in_without_its_list_is_not_quoted() -> None:
    others = "How tenants are isolated is described in layers."
    cut = THREE_LAYERS.partition("1.")[0]
    assert "Three layers" not in await answer("How are tenants isolated in layers?", others, cut)


async def test_repeated_lead_in_is_quoted_from_the_chunk_with_its_list() -> None:
    lead = "Three layers isolate the tenants of a database:"
    text = await answer(
        "Which layers isolate tenants?", f"Words.\n\n{lead}", BILLING, f"{lead}\n\n- roles\n- policies\n"
    )
    assert text == f"{lead} [Source 3]\nroles [Source 3]\npolicies [Source 3]"


async def test_short_sentence_is_quoted_if_it_answers() -> None:
    others = "The project has users in ten countries. The project began in a small garage."
    text = await answer(
        "Which license has the project?", f"{others}\n\n{BILLING}\n\nRivers run.\n\nMIT license."
    )
    assert text.startswith("MIT license. [Source 1]")


async def test_row_whose_key_the_query_names_precedes_a_sentence_with_its_words() -> None:
    common = (
        "A low tide is dangerous. A low bridge was built. The price is low. Low water is in May. Low in fat."
    )
    texts = (
        f"{common} An answer of low quality is logged.",
        "Fields of its quality:\n\n| field | meaning |\n|---|---|\n| `low` | below 0.3 |\n| `all` | words |",
    )
    assert (await answer("When is the quality low?", *texts)).startswith("field: low; meaning: below 0.3")


async def test_row_of_an_identifier_needs_the_whole_identifier() -> None:
    texts = (
        "Quality is low if the relevance is low.",
        "| field | meaning |\n|---|---|\n| `low_quality` | counted |",
    )
    assert (await answer("When is quality low?", *texts)).startswith("Quality is low if")
    assert (await answer("What is low_quality?", *texts)).startswith("field: low_quality")


async def test_lead_in_is_quoted_with_the_first_items_of_a_long_list() -> None:
    long = "".join(f"- Layer {n} has {'many ' * 20}parts.\n" for n in range(12))
    text = await answer("Which layers isolate tenants?", f"These layers isolate tenants:\n\n{long}")
    items = [line for line in text.splitlines() if line.startswith("Layer")]
    assert [line[: len("Layer 0")] for line in items] == [f"Layer {n}" for n in range(len(items))]
    assert 4 <= len(items) <= 6


async def test_repeated_sentence_is_quoted_from_the_source_about_the_query() -> None:
    kettle, toaster = (f"## {name}\n\nThe guarantee lasts two years." for name in ("Kettle", "Toaster"))
    assert "[Source 2]" in await answer("How long is the guarantee of the toaster?", kettle, toaster)
    assert "[Source 1]" in await answer("How long is the guarantee of the kettle?", kettle, toaster)


async def test_command_is_quoted_with_its_lead_in() -> None:
    text = "Restart the pump with this command:\n\n    pump restart\n\nIt takes a minute."
    quoted = "Restart the pump with this command: [Source 1]\n```\npump restart\n```\n[Source 1]"
    assert (await answer("Which command restarts the pump?", text)).startswith(quoted)


async def test_sentence_is_followed_by_the_next_one_of_its_paragraph() -> None:
    text = (
        "The pump has a motor of iron. It weighs two tons. The lid is of tin.\n\nThe pump has a motor guard."
    )
    first = "The pump has a motor of iron. [Source 1] It weighs two tons. [Source 1]"
    assert (await answer("What is the motor of the pump made of, iron?", text)).startswith(first)


async def test_sentence_after_one_without_a_full_stop_is_on_its_own_line() -> None:
    statements = "The motor of the pump has a fan. The motor of the pump is old."
    text = f"The motor of the pump has these parts:\n\n{statements}"
    quoted = await answer("What does the motor of the pump have?", text)
    assert quoted.startswith(
        "The motor of the pump has these parts: [Source 1]\nThe motor of the pump has a fan. [Source 1] The"
    )


async def test_row_with_the_exact_name_is_quoted() -> None:
    rows = "\n\n".join(f"name: Person{n}; phone: 555-{n:04}" for n in (178, 30, 299, 17, 1, 170))
    quoted = await answer("phone number of Person17?", rows, "Phones are answered on Mondays.")
    assert quoted.startswith("name: Person17; phone: 555-0017 [Source 1]")


async def test_row_about_the_word_of_the_query_is_preferred() -> None:
    table = (
        "| scope | key may |\n|---|---|\n| `read` | ask |\n| `write` | ask, save |\n| `admin` | write all |"
    )
    quoted = await answer("What may a key with the scope write do?", table)
    assert quoted.startswith("scope: write; key may: ask, save [Source 1]")


async def test_words_of_a_setting_do_not_count_alone() -> None:
    table = "| item | set by |\n|---|---|\n| tenants | `IDEMPOTENCY_KEPT_APART` |"
    quoted = await answer("How are tenants kept apart?", "Tenants live apart in the database.", table)
    assert quoted.startswith("Tenants live apart")
    assert "IDEMPOTENCY_KEPT_APART" in await answer("IDEMPOTENCY_KEPT_APART", RHINE, table)


async def test_embeddings_select_sentence_when_words_do_not_match() -> None:
    async def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0] if "price" in text or "euros" in text else [0.0, 1.0] for text in texts]

    text = "The ticket office opens at nine. A ride is four euros for one adult."
    chosen = await answer("What is the price of a ticket?", text, provider=ExtractiveProvider(embed=embed))
    assert "four euros" in chosen
    by_words = await answer("What is the price of a ticket?", text)
    assert "ticket office" in by_words


async def test_failing_embedder_falls_back_to_words(caplog: pytest.LogCaptureFixture) -> None:
    async def embed(texts: Sequence[str]) -> list[list[float]]:
        raise EmbeddingError("down")

    text = await answer("How long is the Rhine?", RHINE, provider=ExtractiveProvider(embed=embed))
    assert "1,230 km" in text
    assert "by words alone" in caplog.text


async def test_extractive_answer_with_embedding_provider_quotes_source() -> None:
    provider = ExtractiveProvider(embed=HashingEmbedder().embed_documents)
    assert "1,230 km" in await answer("How long is the Rhine?", RHINE, DANUBE, provider=provider)


async def test_questions_in_sources_are_not_quoted() -> None:
    faq = "How long is the Rhine? The Rhine measures some 1,230 km from source to mouth."
    example = 'Try this:\n\n    ask "How long is the Rhine?"\n'
    text = await answer("How long is the Rhine?", example, faq)
    assert text == "The Rhine measures some 1,230 km from source to mouth. [Source 2]"


async def test_huge_sources_are_read_in_part() -> None:
    endless = "word " * 200_000
    text = await answer("How long is the Rhine?", RHINE, *[endless] * 50)
    assert "1,230 km" in text
    assert len(text) < 1000


async def test_quoted_code_block_is_on_its_own_lines() -> None:
    text = "Restart the pump:\n\n```sh\npump restart --now\n```\n\nThe weather is fine."
    chosen = await answer("Which pump restart command?", text)
    assert "```sh\npump restart --now\n```\n[Source 1]" in chosen


@pytest.mark.parametrize(("relevance", "first"), [(0.98, 2), (0.2, 1)])
async def test_low_relevance_source_needs_more_matching_words(relevance: float, first: int) -> None:
    near = GroundingSource(
        1, "[Source 1]", "Kings signed a peace treaty in Rome in 1957.", 0.5, relevance=1.0
    )
    far = replace(
        near, number=2, label="[Source 2]", text="Kings signed a long peace treaty in Rome in 1763."
    )
    given = [near, replace(far, relevance=relevance)]
    question = [{"role": "user", "content": "When did kings sign a long peace treaty in Rome?"}]
    text = (await ExtractiveProvider().generate(question, sources=given)).content
    assert quotations(text)[0][1] == first


class NearEmbedder:
    """To it all texts are near, as texts of other scripts are to an English model."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0]] * len(texts)


@pytest.mark.parametrize(
    ("own", "foreign", "text"),
    [
        ("Где хранятся ключи?", "Кто открыл Америку?", "Все ключи хранятся в сейфе. Сейф стоит у входа."),
        ("กุญแจเก็บไว้ที่ไหน", "ใครค้นพบทวีปอเมริกา", "กุญแจเก็บไว้ในตู้ข้างประตูทางเข้าสำนักงาน"),
    ],
)
async def test_foreign_query_in_another_script_is_refused(own: str, foreign: str, text: str) -> None:
    provider = ExtractiveProvider(embed=NearEmbedder().embed)
    assert (await answer(foreign, text, provider=provider)) == NO_ANSWER
    assert (await answer(own, text, provider=provider)) != NO_ANSWER


async def test_words_alone_rank_between_texts_of_another_script() -> None:
    text = "Сейф стоит у входа. Все ключи хранятся в сейфе."
    query = "Где хранятся ключи?"

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0] if one == query or "ключи" not in one else [0.0, 1.0] for one in texts]

    chosen = await answer(query, text, provider=ExtractiveProvider(embed=embed))
    assert chosen.startswith("Все ключи хранятся в сейфе.")
