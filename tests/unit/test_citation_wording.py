"""Verdicts on what a sentence says about its numbers and names: negations, quantifiers, opposites, order."""

import pytest

from tests.support.rag.chunks import make_chunk
from vectorforge.pipeline.citations.check import CitationChecker

LIMITS = (
    "Every employee may book a hotel before the trip. The limit is 180 euros in Vienna and 95 euros in Graz. "
    "Bert approves the Vienna hotels, and Maria reviews the receipts of Bert after the trip. "
    "Taxis are not paid. Most trips are shorter than 3 days."
)
TENANTS = "Tenants are kept apart by row-level security, which is enabled and forced on all tables."
GERMAN = (
    "Der Vertrag wird vor dem Umzug gekündigt. Alle Mieter erhalten eine Kopie. Haustiere sind nicht erlaubt."
)


def verdict(sentence: str, *chunks: str, query: str = "") -> str:
    """Return the verdict of a sentence that cites the first chunk."""
    checker = CitationChecker(query, [make_chunk(chunk) for chunk in chunks])
    checker.feed(f"{sentence} [Source 1]\n")
    checker.finish()
    return checker.citations[0].verdict


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Every employee may book a hotel before the trip.", "supported"),
        ("A hotel may be booked by every employee before the trip.", "supported"),
        ("Before the trip, every employee may book a hotel.", "supported"),
        ("Every employee may book a hotel after the trip.", "unsupported"),
        ("No employee may book a hotel before the trip.", "unsupported"),
        ("Every employee may not book a hotel before the trip.", "unsupported"),
        ("Few employees may book a hotel before the trip.", "unsupported"),
        ("The limit is 95 euros in Vienna.", "unsupported"),
        ("The limit is 180 euros in Vienna.", "supported"),
        ("Maria approves the Vienna hotels.", "unsupported"),
        ("Taxis are paid.", "unsupported"),
        ("Taxis aren't paid.", "supported"),
        ("Most trips are longer than 3 days.", "unsupported"),
        ("All trips are shorter than 3 days.", "unsupported"),
        ("Some trips are shorter than 3 days.", "supported"),
        ("Every employee receives unlimited free champagne and a company helicopter.", "unsupported"),
        (
            "The Vienna hotel limit of 180 euros was abolished last year and Bert was fired for it.",
            "unchecked",
        ),
        ("People travelling need to book rooms ahead.", "unchecked"),
        ("La limite est de 180 euros à Vienne, et les hôtels sont approuvés par Bert.", "unchecked"),
        ("La limite est de 190 euros à Vienne, et les hôtels sont approuvés par Bert.", "unsupported"),
    ],
)
def test_sentence_is_compared_with_the_sentence_of_its_chunk(sentence: str, expected: str) -> None:
    assert verdict(sentence, LIMITS) == expected


BRIDGES = (
    "The Tay bridge is the third longest bridge of the country. The prompt of a Parisian firm, drawn about "
    "a million times, won the competition. It was shown at the London Exhibition in 1862. Of the visitors, "
    "88,541 paid."
)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("The Tay bridge is the third longest bridge of the country.", "supported"),
        ("The Tay bridge is the second longest bridge of the country.", "unsupported"),
        ("The Tay bridge is a long bridge of the smaller country.", "unchecked"),
        ("The prompt of a firm from Paris was drawn one million times.", "supported"),
        ("The prompt of a firm from Rome was drawn one million times.", "unsupported"),
        ("The prompt of a firm from Paris was drawn one billion times.", "unsupported"),
        ("It was shown in London in 1862.", "supported"),
        ("It was shown in Paris in 1862.", "unchecked"),
        ("More than 88,000 visitors paid.", "supported"),
        ("Nearly 89,000 visitors paid.", "supported"),
        ("More than 89,000 visitors paid.", "unsupported"),
        ("About 70,000 visitors paid.", "unsupported"),
    ],
)
def test_paraphrase_keeps_ordinals_places_and_rounded_numbers(sentence: str, expected: str) -> None:
    assert verdict(sentence, BRIDGES) == expected


def test_sentence_that_agrees_with_another_one_is_not_unsupported() -> None:
    chunk = (
        "Claude works best when images come before text. "
        "Images placed after text or interpolated with text will still perform well."
    )
    assert verdict("Claude still does well if the images come after the text.", chunk) == "unchecked"


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Der Vertrag wird vor dem Umzug gekündigt.", "supported"),
        ("Der Vertrag wird nach dem Umzug gekündigt.", "unsupported"),
        ("Haustiere sind erlaubt.", "unsupported"),
        ("Der Vertrag wird nicht vor dem Umzug gekündigt.", "unsupported"),
        ("Einige Mieter erhalten eine Kopie.", "supported"),
        ("Kein Mieter erhält eine Kopie.", "unsupported"),
    ],
)
def test_german_sentence_is_compared_with_the_sentence_of_its_chunk(sentence: str, expected: str) -> None:
    assert verdict(sentence, GERMAN) == expected


def test_added_name_is_unchecked_if_another_chunk_has_it() -> None:
    sentence = "Tenants are kept apart by row-level security in PostgreSQL."
    assert verdict(sentence, TENANTS) == "unsupported"
    assert verdict(sentence, TENANTS, "PostgreSQL isolates tenants by policies.") == "unchecked"
    replaced = "Tenants are kept apart by row-level security, which is enabled on all tables of Oracle."
    assert verdict(replaced, f"{TENANTS[:-1]} of MariaDB.", "Oracle is not supported.") == "unsupported"


def test_neighboring_labels_share_the_words_of_their_sentence() -> None:
    checker = CitationChecker(
        "", [make_chunk("Hotels are booked online."), make_chunk("Taxis are paid in cash.")]
    )
    checker.feed(
        "Hotels are booked online and taxis are paid in cash [1][2]. Taxis are not paid in cash [1][2]."
    )
    checker.finish()
    assert [c.verdict for c in checker.citations] == ["supported", "supported", "unchecked", "unsupported"]


@pytest.mark.parametrize(
    ("answer", "uncited"),
    [
        ("Hotels cost 180 euros [1]. Taxis are never paid by us. They are.", 1),
        ("Hotels cost 180 euros. [1] Taxis are never paid by us.\n[1]\n", 0),
        (
            "# All about hotels\nThese are limits:\n\n- Hotels cost 180 euros [1]\n- Taxis cost the driver",
            1,
        ),
        ("- Hotels cost 180 euros [1]\n- Taxis are never paid by us\n- Nor are trains in Austria\n", 2),
        ("Do you know what hotels cost? They cost 180 euros [1].", 0),
        ("```\nprint(a b c d e f)\n```\nIt is 180 euros [1].", 0),
        ("I don't have enough information to answer that question.", 0),
        ("酒店价格为180欧元。", 1),
    ],
)
def test_sentences_without_a_citation_are_counted(answer: str, uncited: int) -> None:
    for step in (1, 7, len(answer)):
        checker = CitationChecker("", [make_chunk("Hotels cost 180 euros.")])
        for start in range(0, len(answer), step):
            checker.feed(answer[start : start + step])
        checker.finish()
        assert checker.uncited == uncited
