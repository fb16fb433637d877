"""Markup, definitions and values in what the extractive provider quotes."""

import pytest

from tests.unit.extractive_answers import BILLING, answer


@pytest.mark.parametrize(
    ("question", "text", "quoted"),
    [
        (
            "Who reviews the travel budget?",
            "The [finance\nteam](https://example.org/finance) reviews the **travel\nbudget** twice.",
            "The finance team reviews the travel budget twice.",
        ),
        (
            "Who answers press requests?",
            "**The press office answers press requests. Do not answer them yourself.**",
            "The press office answers press requests.",
        ),
        (
            "所有者のルールは何ですか",
            "値は*所有者*と呼ばれる変数と対応していて、**ルール**は三つあります。",
            "値は所有者と呼ばれる変数と対応していて、ルールは三つあります。",
        ),
        (
            "How long does the approval of a talk take?",
            '<h3 class="title"\n id="a">Talks</h3> The approval of a talk takes three weeks.',
            "Talks The approval of a talk takes three weeks.",
        ),
    ],
)
async def test_quotation_has_no_markup(question: str, text: str, quoted: str) -> None:
    assert (await answer(question, text)).startswith(f"{quoted} [Source 1]")


async def test_placeholder_in_angle_brackets_is_quoted() -> None:
    text = "Run the import with <label> and <path> as its arguments."
    assert await answer("How do I run the import?", text) == f"{text} [Source 1]"


GLOSSARY = """- **ADR** - Architecture Decision Record. There is an article about ADRs, which stand for much.
- **API** – Application programming interface.
"""


@pytest.mark.parametrize(
    ("question", "quoted"),
    [
        ("What does ADR stand for?", "ADR - Architecture Decision Record."),
        ("What is API?", "API – Application programming interface."),
    ],
)
async def test_item_of_a_glossary_answers_for_its_name(question: str, quoted: str) -> None:
    assert (await answer(question, GLOSSARY, BILLING)).startswith(quoted)


@pytest.mark.parametrize(
    ("question", "first", "second"),
    [
        (
            "Qu'est-ce que Candilib ?",
            "Candilib permet aussi de respecter les candidats.",
            "Candilib est le service de réservation des places d'examen du permis de conduire.",
        ),
        (
            "O que é a ata?",
            "A ata precisa de uma assinatura digital.",
            "A ata é o documento que registra os preços.",
        ),
        (
            "Was ist Pflegezeit?",
            "Pflegezeit beantragen Beschäftigte beim Arbeitgeber.",
            "Pflegezeit ist die Freistellung von der Arbeit wegen der Pflege eines Angehörigen.",
        ),
    ],
)
async def test_query_for_a_definition_prefers_it(question: str, first: str, second: str) -> None:
    assert (await answer(question, f"{first} {second}")).startswith(second)


@pytest.mark.parametrize(
    ("question", "first", "second"),
    [
        (
            "How long is the approval of a talk?",
            "The approval of a talk has 3 parts.",
            "The approval of a talk takes 5 weeks.",
        ),
        ("花菜要煮多久？", "花菜要煮 300 克。", "花菜要煮 2-3 分钟。"),
        (
            "Wie lange dauert die Prüfung?",
            "Die Prüfung hat 12 Teile und dauert.",
            "Die Prüfung dauert 90 Minuten.",
        ),
    ],
)
async def test_query_for_a_duration_prefers_one(question: str, first: str, second: str) -> None:
    assert (await answer(question, f"{first}\n\n{second}")).startswith(second)


async def test_line_with_a_value_is_no_title() -> None:
    recipe = "# 金汤力\n\n这是一款鸡尾酒。\n\n预估卡路里：205 大卡\n\n## 原料\n\n- 金酒\n"
    assert (await answer("金汤力的卡路里是多少？", recipe)).startswith("金汤力:\n预估卡路里：205 大卡")
    tea = "# Tea\n\nA drink of leaves.\n\nTotal calories: 3 kcal\n\n## Steps\n\n- Wait.\n"
    assert (await answer("How many calories has tea?", tea)).startswith("Tea:\nTotal calories: 3 kcal")


async def test_long_query_with_what_is_none_for_a_definition() -> None:
    first = "Two ways to return the rented bicycles are the station and the shop."
    text = f"Rented bicycles are blue. {first}"
    assert (await answer("What are the two ways to return rented bicycles?", text)).startswith(first)
