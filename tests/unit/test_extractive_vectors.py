"""Quotations chosen with an embedder, and refusals that its vectors decide."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.support.vendors.hashing_embedder import HashingEmbedder
from tests.unit.extractive_answers import DANUBE, RHINE, answer, sources
from vectorforge.errors import EmbeddingError
from vectorforge.llm.providers.extractive import NO_ANSWER, ExtractiveProvider


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
    assert "Ranking without the embedder" in caplog.text


async def test_extractive_answer_with_embedding_provider_quotes_source() -> None:
    provider = ExtractiveProvider(embed=HashingEmbedder().embed_documents)
    assert "1,230 km" in await answer("How long is the Rhine?", RHINE, DANUBE, provider=provider)


class NearEmbedder:
    """To it all texts are near, as texts of other scripts are to an English model."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0]] * len(texts)


@pytest.mark.parametrize(
    ("own", "foreign", "text"),
    [
        ("Где хранятся ключи?", "Кто открыл Америку?", "Все ключи хранятся в сейфе. Сейф стоит у входа."),
        (
            "鍵はどこに保管されていますか？",
            "太陽系には惑星がいくつありますか？",
            "鍵は金庫に保管されています。入口には金庫があります。鍵もいくつかあります。",
        ),
        (
            "열쇠는 어디에 보관되나요?",
            "여권은 어떻게 신청하나요?",
            "열쇠는 금고에 보관됩니다. 금고를 어떻게 여는지 하나씩 설명합니다.",
        ),
        ("กุญแจเก็บไว้ที่ไหน", "ใครค้นพบทวีปอเมริกา", "กุญแจเก็บไว้ในตู้ข้างประตูทางเข้าสำนักงาน"),
    ],
)
async def test_foreign_query_in_another_script_is_refused(own: str, foreign: str, text: str) -> None:
    provider = ExtractiveProvider(embed=NearEmbedder().embed)
    assert (await answer(foreign, text, provider=provider)) == NO_ANSWER
    assert (await answer(own, text, provider=provider)) != NO_ANSWER


async def test_foreign_query_with_common_words_in_a_language_unknown_to_the_model_is_refused() -> None:
    text = "Chìa khóa của văn phòng được cất trong két sắt. Két sắt là của công ty và ở cạnh cửa ra vào."

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0], *([0.55, 0.835] for _ in texts[1:])]

    provider = ExtractiveProvider(embed=embed)
    assert (await answer("Thủ đô của Úc là gì?", text, provider=provider)) == NO_ANSWER
    assert (await answer("Chìa khóa được cất ở đâu?", text, provider=provider)) != NO_ANSWER


CODES = "| Code | Ursache |\n|---|---|\n| E03 | Tür offen |\n| E05 | Pumpe blockiert |"


@pytest.mark.parametrize(
    "query",
    [
        "was bedeutet {}",
        "qué significa {}",
        "que veut dire {}",
        "что означает {}?",
        "{}是什么意思",
        "{}가 무슨 뜻이에요",
        "{} หมายถึงอะไร",
        "what does {} mean",
    ],
)
async def test_query_for_an_identifier_is_answered_where_a_source_has_it(query: str) -> None:
    async def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0], *([0.2, 0.98] for _ in texts[1:])]  # codes mean nothing to a model

    provider = ExtractiveProvider(embed=embed)
    for code in ("E05", "e05"):
        text = await answer(query.format(code), CODES, provider=provider)
        assert text.startswith("Code: E05; Ursache: Pumpe blockiert [Source 1]")
    assert await answer(query.format("E99"), CODES, provider=provider) == NO_ANSWER
    other = "Wie teuer war der Austausch der Bremsen beim Modell {} in München?"
    assert await answer(other.format("E05"), CODES, provider=provider) == NO_ANSWER


@pytest.mark.parametrize("query", ["qué significa LDAP", "ldap nedir", "LDAP คืออะไร", "LDAP คืออะไร?"])
async def test_query_for_an_acronym_is_answered_where_a_source_has_it(query: str) -> None:
    async def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0], *([0.2, 0.98] for _ in texts[1:])]

    provider = ExtractiveProvider(embed=embed)
    text = "El turno empieza a las ocho. El acceso usa LDAP, un directorio."
    assert (await answer(query, text, provider=provider)).startswith("El acceso usa LDAP, un directorio.")
    compound = "Wir haben einen LDAP-Server."
    assert (await answer(query, compound, provider=provider)).startswith(compound)
    other = "¿Quién inventó el protocolo LDAP en la universidad?"
    assert await answer(other, text, provider=provider) == NO_ANSWER


@pytest.mark.parametrize("query", ["was kostet {}", "{}の原因は何ですか"])
async def test_query_for_an_identifier_that_no_source_has_is_refused(query: str) -> None:
    text = "Was kostet es? Der Preis kostet 5 €. エラーの原因はどこですかと聞く。"
    text += "| Code | エラーの原因 |\n|---|---|\n| E05 | エラーの原因は電池。|"
    provider = ExtractiveProvider(embed=NearEmbedder().embed)
    assert await answer(query.format("E12"), text, provider=provider) == NO_ANSWER
    assert await answer(query.format("E05"), text, provider=provider) != NO_ANSWER


@pytest.mark.parametrize("query", ["what does {} mean", "was bedeutet {}", "{}"])
async def test_code_with_a_hyphen_counts_as_one_word(query: str) -> None:
    async def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0], *([0.2 if "PAY-330" in query else 0.6, 0.8] for _ in texts[1:])]

    provider = ExtractiveProvider(embed=embed)
    text = "| code | meaning |\n|---|---|\n| PAY-101 | card declined |\n| PAY-330 | ledger mismatch |"
    for code in ("PAY-330", "pay-330"):
        found = await answer(query.format(code), text, provider=provider)
        assert found.startswith("code: PAY-330; meaning: ledger mismatch [Source 1]")
    assert await answer(query.format("PAY-999"), text, provider=provider) == NO_ANSWER


@pytest.mark.parametrize("text", ["ISO 27001 is a standard.", "ISO27001 is a standard."])
async def test_code_with_a_hyphen_matches_its_other_spellings(text: str) -> None:
    provider = ExtractiveProvider(embed=NearEmbedder().embed)
    assert (await answer("what is ISO-27001", text, provider=provider)).startswith(text)


@pytest.mark.parametrize("query", ["HIS là gì", "was bedeutet IT", "τι σημαίνει IT"])
async def test_acronym_that_is_also_a_stop_word_is_found(query: str) -> None:
    async def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0], *([0.2, 0.98] for _ in texts[1:])]

    provider = ExtractiveProvider(embed=embed)
    text = "It is his turn at eight. All data is in HIS, a program of IT."
    assert (await answer(query, text, provider=provider)).startswith("All data is in HIS, a program of IT.")
    assert await answer(query, "It is his turn at eight.", provider=provider) == NO_ANSWER
    assert await answer("Wer trägt IT-278 nachts hinaus", "IT-278 ist da.", provider=provider) == NO_ANSWER


async def test_acronym_in_text_without_small_letters_is_found() -> None:
    async def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0], *([0.2, 0.98] for _ in texts[1:])]

    text = "การเข้าสู่ระบบใช้ LDAP ซึ่งเป็นไดเรกทอรีของบัญชีผู้ใช้ทั้งหมด"
    assert (await answer("LDAP คืออะไร", text, provider=ExtractiveProvider(embed=embed))) != NO_ANSWER


@pytest.mark.parametrize("query", ["wie teuer ist AI", "cuánto cuesta AI", "wann kam AI"])
async def test_query_for_a_value_needs_more_than_its_acronym(query: str) -> None:
    async def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0], *([0.2, 0.98] for _ in texts[1:])]

    text = "The plans use AI for drafts. The office is open."
    assert await answer(query, text, provider=ExtractiveProvider(embed=embed)) == NO_ANSWER


async def test_piece_with_the_identifier_precedes_a_nearer_one() -> None:
    async def compare(query: str, sentences: Sequence[tuple[str, str]]) -> list[float]:
        return [0.1 if "E05" in one else 0.5 for _, one in sentences]

    provider = ExtractiveProvider(compare=compare)
    text = await answer(
        "que veut dire E05", CODES, "Dire la vérité ?\n\nElle veut parler.", provider=provider
    )
    assert text.startswith("Code: E05; Ursache: Pumpe blockiert [Source 1]")


async def test_comparison_ranks_and_vectors_of_the_best_decide_on_the_refusal() -> None:
    text = "The Rhine is a long river. It takes 1,230 km to the sea. The Rhine is in Europe. "
    text += "Barges use the Rhine. The Rhine rises in the Alps. Castles line the Rhine."
    compared: list[tuple[str, str]] = []
    embedded: list[int] = []

    async def compare(query: str, sentences: Sequence[tuple[str, str]]) -> list[float]:
        compared.extend(sentences)
        return [0.9 if "1,230 km" in one else 0.1 for _, one in sentences]

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        embedded.append(len(texts) - 1)
        return [[1.0, 0.0] for _ in texts]

    async def embed_far(texts: Sequence[str]) -> list[list[float]]:
        embedded.append(len(texts) - 1)
        return [[1.0, 0.0], *([-1.0, 0.0] for _ in texts[1:])]

    query, given = "How long is the Rhine?", [replace(sources(text)[0], heading="Rivers > Rhine")]
    question = [{"role": "user", "content": query}]
    response = await ExtractiveProvider(embed=embed, compare=compare).generate(question, sources=given)
    assert response.content.startswith("It takes 1,230 km to the sea.")
    assert ("Rivers > Rhine", "The Rhine is in Europe.") in compared
    response = await ExtractiveProvider(embed=embed_far, compare=compare).generate(question, sources=given)
    assert response.content == NO_ANSWER
    assert embedded == [1, 1, 4], "sentences besides the query: the best alone, then the best four of six"


async def test_failing_comparison_falls_back_to_vectors() -> None:
    text = "The Rhine is a long river. It takes 1,230 km to the sea. The Rhine is in Europe."

    async def compare(query: str, sentences: Sequence[tuple[str, str]]) -> list[float]:
        raise EmbeddingError("down")

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0] if "long is" in one or "1,230 km" in one else [0.0, 1.0] for one in texts]

    provider = ExtractiveProvider(embed=embed, compare=compare)
    assert (await answer("How long is the Rhine?", text, provider=provider)).startswith("It takes 1,230 km")


async def test_words_alone_rank_between_texts_of_another_script() -> None:
    text = "Сейф стоит у входа. Все ключи хранятся в сейфе."
    query = "Где хранятся ключи?"

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0] if one == query or "ключи" not in one else [0.0, 1.0] for one in texts]

    chosen = await answer(query, text, provider=ExtractiveProvider(embed=embed))
    assert chosen.startswith("Все ключи хранятся в сейфе.")


COVERAGES = """
from vectorforge.llm.providers.quotations import Piece
from vectorforge.llm.providers.words import Candidate, WeightedQuery, terms
words = "tower river bridge castle garden market harbor".split()
found = [terms(" ".join(words[:number])) for number in range(1, 8)]
empty = frozenset()
among = [Candidate(0, Piece(0, 1, "x", ""), one, empty, empty, empty) for one in found]
query = WeightedQuery(" ".join(words), among)
print([query.coverage(one) for one in found])
"""


def test_scores_are_the_same_in_every_process() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", COVERAGES],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
        )
        for seed in range(4)
    ]
    assert len({run.stdout for run in runs}) == 1
