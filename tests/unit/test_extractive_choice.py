"""Choice of the sentences, list items and rows that the extractive provider quotes."""

from dataclasses import replace

import pytest

from tests.support.rag.chunks import make_chunk
from tests.unit.extractive_answers import BILLING, RHINE, answer, quotations, sources
from vectorforge.llm.providers.extractive import ExtractiveProvider
from vectorforge.llm.types import GroundingSource
from vectorforge.pipeline.citations.check import CitationChecker

THREE_LAYERS = "Three layers isolate tenants:\n\n1. Code.\n2. Statements.\n3. The database.\n"


async def test_further_lead_in_is_quoted_with_its_list() -> None:
    others = "How tenants are isolated is described in layers."
    text = await answer("How are tenants isolated in layers?", others, THREE_LAYERS)
    lead = "Three layers isolate tenants: [Source 2]"
    layers = "1. Code. [Source 2]\n2. Statements. [Source 2]\n3. The database. [Source 2]"
    assert text == f"{others} [Source 1] {lead}\n{layers}"


RELEASE = (
    "## Added\n\n- Support for Opera 120.\n\n## Removed in `2.0`\n\n- Support for Internet Explorer 11.\n"
)


async def test_item_without_a_lead_in_is_quoted_below_its_heading() -> None:
    text = await answer("does it support internet explorer 11", RELEASE, BILLING)
    first = "Removed in 2.0:\nSupport for Internet Explorer 11. [Source 1]"
    assert text in (first, f"{first}\n\nAdded:\nSupport for Opera 120. [Source 1]")


async def test_item_is_quoted_below_the_lead_in_of_its_list() -> None:
    prices = "Preise ab Januar:\n\n- Akku: 45 €\n- Bildschirm: 120 €\n"
    text = await answer("was kostet ein Bildschirm", prices, BILLING)
    assert text == "Preise ab Januar:\nBildschirm: 120 € [Source 1]"


async def test_row_without_a_lead_in_is_quoted_below_the_heading_above_its_chunk() -> None:
    table = "| browser | since |\n|---|---|\n| Internet Explorer | 2.0 |\n| Opera | 2.1 |"
    given = [replace(sources(table)[0], heading="Releases > Why removed?"), sources(RHINE, BILLING)[1]]
    question = [{"role": "user", "content": "Since when Internet Explorer?"}]
    text = (await ExtractiveProvider().generate(question, sources=given)).content
    assert text.startswith("Why removed?\nbrowser: Internet Explorer; since: 2.0 [Source 1]")


@pytest.mark.parametrize("heading", ["Removed [1]", "![logo](logo.png)", "Removed " * 20])
async def test_heading_with_a_label_an_image_or_a_long_text_is_not_quoted(heading: str) -> None:
    text = await answer("which explorer", f"## {heading}\n\n- Internet Explorer 11.\n", BILLING)
    assert text == "Internet Explorer 11. [Source 1]"


async def test_steps_are_quoted_below_one_heading_and_sentences_below_none() -> None:
    steps = "## Oil the pump\n\n1. Open the lid of the pump.\n2. Add oil to the pump."
    text = await answer("How do I oil the pump?", f"{steps}\n\nThe pump needs oil every year.")
    lines = "Oil the pump:\n1. Open the lid of the pump. [Source 1]\n2. Add oil to the pump. [Source 1]"
    assert text == f"{lines}\n\nThe pump needs oil every year. [Source 1]"


async def test_code_within_steps_is_quoted_below_their_heading() -> None:
    text = "## Oil the pump\n\n1. Open it:\n\n```sh\npump open\n```\n\n2. Add oil to the pump."
    steps = "1. Open it: [Source 1]\n```sh\npump open\n```\n[Source 1]\n2. Add oil to the pump. [Source 1]"
    assert await answer("How do I oil the pump?", text) == f"Oil the pump:\n{steps}"


async def test_citation_of_an_item_below_its_heading_is_supported_and_points_to_the_item() -> None:
    text = await answer("does it support internet explorer 11", RELEASE)
    checker = CitationChecker("", [make_chunk(RELEASE, start_offset=0)])
    checker.feed(text)
    first, *_ = [*checker.citations, *checker.finish()]
    assert text.startswith("Removed in 2.0:\n")
    assert first.verdict == "supported"
    assert RELEASE[first.start_offset : first.end_offset] == "Support for Internet Explorer 11."
    assert checker.uncited == 0


async def test_further_step_is_quoted_with_all_steps_of_a_procedure() -> None:
    text = await answer(
        "How do I return a lamp?",
        "You can return a lamp for 30 days.\n\n1. Open the page.\n2. Print the return label of the lamp.\n",
    )
    first = "You can return a lamp for 30 days. [Source 1]"
    steps = "1. Open the page. [Source 1]\n2. Print the return label of the lamp. [Source 1]"
    assert text == f"{first}\n{steps}"


@pytest.mark.parametrize(
    ("query", "is_procedure"),
    [
        ("Wie kommt Wasser in die Pumpe?", True),
        ("Wie kann man Wasser in die Pumpe füllen?", True),
        ("Wie lange dauert es, bis Wasser in der Pumpe ist?", False),
        ("Wie viel Wasser kommt in die Pumpe?", False),
        ("Wie hoch steht das Wasser in der Pumpe?", False),
        ("Comment purger la Pumpe avec 3 Liter Wasser?", True),
        ("How do I fill the Pumpe with Wasser?", True),
        ("How much Wasser is in the Pumpe?", False),
        ("Jak wlać Wasser do Pumpe?", True),
        ("كيف أملأ Pumpe Wasser؟", True),
        *((f"{how} Pumpe Wasser?", True) for how in ("Как", "Πώς", "Hoe", "Hur", "Hvordan", "Bagaimana")),
        *((f"Pumpe Wasser {how}", True) for how in ("nasıl", "thế nào", "कैसे", "どうやって", "어떻게")),
    ],
)
async def test_steps_are_quoted_together_only_for_a_procedure(query: str, is_procedure: bool) -> None:
    steps = "1. Ventil öffnen und warten.\n2. In die Pumpe 3 Liter Wasser füllen.\n3. Deckel schließen.\n"
    assert ("Deckel schließen." in await answer(query, steps, BILLING)) is is_procedure


async def test_further_sentences_of_a_paragraph_keep_their_order() -> None:
    first = "Leave is 28 days for people who work full time."
    others = "Parental leave has more days. It is announced fifty days before the days of leave."
    text = await answer("How many days is leave?", f"{first}\n\n{others}")
    assert [quoted for quoted, _ in quotations(text)] == [
        first,
        "Parental leave has more days.",
        "It is announced fifty days before the days of leave.",
    ]


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
    first = "Fields of its quality:\nfield: low; meaning: below 0.3 [Source 2]"
    assert (await answer("When is the quality low?", *texts)).startswith(first)


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


async def test_questions_in_sources_are_not_quoted() -> None:
    faq = "How long is the Rhine? The Rhine measures some 1,230 km from source to mouth."
    example = 'Try this:\n\n    ask "How long is the Rhine?"\n'
    text = await answer("How long is the Rhine?", example, faq)
    assert text == "The Rhine measures some 1,230 km from source to mouth. [Source 2]"


@pytest.mark.parametrize(
    "reference",
    [
        "See the pump and its motor.",
        "Siehe Motor der pump.",
        "Vgl. die pump mit motor.",
        "参见 the pump and its motor。",
    ],
)
async def test_reference_to_another_place_is_not_quoted(reference: str) -> None:
    text = f"{reference}\n\nThe pump has a motor of iron."
    assert await answer("Which motor has the pump?", text) == "The pump has a motor of iron. [Source 1]"


async def test_statement_after_see_is_quoted() -> None:
    text = "See the plate of the pump: its motor has two kilowatts."
    assert text in await answer("Which motor has the pump?", text, BILLING)


async def test_further_code_is_quoted_with_its_lead_in_only() -> None:
    statement = "The pump restarts its motor a minute after a fault."
    code = "```sh\npump restart motor --after fault\n```"
    question = "When does the pump restart its motor after a fault?"
    assert code not in await answer(question, statement, f"It is loud.\n\n{code}")
    quoted = f"Restart the motor of the pump: [Source 2]\n{code}\n[Source 2]"
    assert quoted in await answer(question, statement, f"Restart the motor of the pump:\n\n{code}")


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
