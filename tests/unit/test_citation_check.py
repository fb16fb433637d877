"""The citation check with deceptive and correct answers."""

from pathlib import Path

import pytest

from tests.support.rag.chunks import make_chunk
from tests.unit.adversarial_answers import ADVERSARIAL, HONEST, PASSAGES
from vectorforge.llm.providers.quotations import split
from vectorforge.pipeline.citations.check import CitationChecker
from vectorforge.pipeline.citations.claims import Evidence, read_claims
from vectorforge.pipeline.citations.names import (
    JoinedWords,
    KnownNames,
    take_addresses,
    take_identifiers,
)
from vectorforge.pipeline.citations.quantities import Quantity
from vectorforge.pipeline.types import Citation

ROOT = Path(__file__).parents[2]


def check(answer: str) -> tuple[list[Citation], int]:
    checker = CitationChecker("", PASSAGES)
    for char in answer:  # as a stream
        checker.feed(char)
    checker.finish()
    return checker.citations, checker.invalid


def refused(answer: str) -> list[int | None]:
    citations, invalid = check(answer)
    return [c.source_number for c in citations if c.verdict == "unsupported"] + [None] * invalid


@pytest.mark.parametrize(("answer", "expected"), ADVERSARIAL, ids=[answer for answer, _ in ADVERSARIAL])
def test_unsupported_citations_are_the_only_ones_rejected(
    answer: str, expected: list[int | None]
) -> None:  # N10
    assert refused(answer) == expected


@pytest.mark.parametrize("answer", HONEST, ids=HONEST)
def test_supported_citations_are_accepted(answer: str) -> None:  # N10
    assert refused(answer) == []


def test_citation_check_has_full_precision_and_recall() -> None:  # N10
    assert len(ADVERSARIAL) >= 40
    flagged = [(answer, number) for answer, _ in ADVERSARIAL for number in refused(answer)]
    flagged += [(answer, number) for answer in HONEST for number in refused(answer)]
    wrong = [(answer, number) for answer, numbers in ADVERSARIAL for number in numbers]
    hits = len([one for one in flagged if one in wrong])
    assert (hits / len(flagged), hits / len(wrong)) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("answer", "verdicts"),
    [
        ("Goods go back within 30 days [Source 1].", ["supported"]),
        ("Refunds are possible [Source 1].", ["unchecked"]),
        ("Refunds are possible. [Source 1] The fee is 4.50 EUR. [Source 1]", ["unchecked", "supported"]),
        ("The fee is 4.50 EUR [Source 1], as it should be [Source 2].", ["supported", "unchecked"]),
        ("Sources: [Source 1], [Source 2]", ["unchecked", "unchecked"]),
        ("| Fee | 4.50 EUR |\n[Source 1]\n", ["supported"]),
        (
            "The fee is 5.50 EUR for every order that somebody sends back\nto the shop [Source 1].",
            ["unsupported"],
        ),
        (
            "Customers may return goods within 30 days of delivery [Source 1]\nSet max_retries. [Source 2]",
            ["supported", "supported"],
        ),
        (
            "The fee of a refund after these thirty days is, it says [Source 1]\nof course 5.50 EUR.",
            ["unsupported"],
        ),
        ("```\nmax_retries = 7\n```\n[Source 2]", ["unsupported"]),
        ("```\nmax_retries --retry-limit\n```\n[Source 2]", ["supported"]),
    ],
)
def test_citation_check_returns_expected_verdicts(answer: str, verdicts: list[str]) -> None:
    assert [citation.verdict for citation in check(answer)[0]] == verdicts


def test_quotation_over_several_lines_of_a_chunk_is_supported() -> None:
    source = make_chunk(
        "Latency\n\nHow to measure latency How to reduce latency 1.\nChoose the right model\n2."
    )
    checker = CitationChecker("", [source])
    checker.feed("How to measure latency How to reduce latency 1. Choose the right model [Source 1]")
    checker.finish()
    assert [citation.verdict for citation in checker.citations][-1:] == ["supported"]


@pytest.mark.parametrize(
    "name",
    ["README.md", "docs/operate/configuration.md", "docs/decisions/database.md", "docs/operate/deploy.md"],
)
def test_quoted_text_is_never_marked_unsupported(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    checked = 0
    for start in range(0, len(text), 1500):
        source = make_chunk(text[start : start + 1500], source=name)
        for piece in split(source.chunk.text):
            if piece.kind == "code":
                continue
            checker = CitationChecker("", [source])
            checker.feed(f"{piece.text}{' ' if piece.kind == 'prose' else chr(10)}[Source 1]\n")
            checker.finish()
            assert [c.verdict for c in checker.citations if c.verdict == "unsupported"] == [], piece.text
            checked += sum(c.verdict == "supported" for c in checker.citations)
    assert checked > 20


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("Er stieg 1990 in die 2. Bundesliga auf.", "Er stieg 1990 in die 2. Bundesliga auf"),
        (
            "Savaşta şehre giren ordu 5. Süvari Kolordusu ile birleşti.",
            "Savaşta şehre giren ordu 5. Süvari Kolordusu ile birleşti",
        ),
        ("Bears eat fish[1] and berries.[2]", "Bears eat fish and berries"),
    ],
)
def test_sentence_with_an_ordinal_or_without_its_footnotes_is_supported(source: str, sentence: str) -> None:
    checker = CitationChecker("", [make_chunk(source)])
    checker.feed(f"{sentence} [Source 1].")
    checker.finish()
    assert [citation.verdict for citation in checker.citations] == ["supported"]
    assert checker.uncited == 0


def test_query_reveals_name_at_sentence_start() -> None:
    answer = "Globex takes goods back within 30 days [Source 1]."
    unaware, aware = CitationChecker("", PASSAGES), CitationChecker("What does Globex take back?", PASSAGES)
    for checker in (unaware, aware):
        checker.feed(answer)
        checker.finish()
    assert [c.verdict for c in unaware.citations] == ["unchecked"]
    assert [c.verdict for c in aware.citations] == ["unsupported"]


def test_known_names_are_capitalized_within_sentences_of_every_line() -> None:
    known = KnownNames(
        [
            "We met Anna in Rome. It was the Report of May.\nLater a report was short.",
            "# About Nora",
            "Nur Otto",
        ]
    )
    words = ("anna", "rome", "report", "may", "nora", "otto", "we", "later")
    assert [word for word in words if word in known] == ["anna", "rome", "may"]


def test_joined_words_are_up_to_six_whole_neighbors() -> None:
    joined = JoinedWords("The max-retries of a GPT 4.1 call; one two three four")
    assert all(word in joined for word in ("maxretries", "max", "ofagpt4.1call", "onetwothree", "four"))
    assert not any(word in joined for word in ("axretries", "maxretrie", "callonetwothreefourfive", "4", ""))
    assert "retriesofagpt4.1call" in joined  # six words
    assert "maxretriesofagpt4.1call" not in joined


def test_name_lookup_reads_line_of_combining_marks() -> None:
    assert "anna" in KnownNames(["It was Anna who wrote it.\n\u0301"])


# Row 40 of the fault campaign: one such answer blocked a whole process for minutes
@pytest.mark.parametrize("run", ["x", "X", "a.", "a-", "A-", "aA"])
def test_unbroken_run_of_characters_is_scanned_once(run: str) -> None:
    text = run * 150_000
    assert take_addresses(text) == (set(), text)
    identifiers, rest = take_identifiers(text)
    assert len(rest) == len(text)
    assert len(identifiers) <= 1


def test_unparsable_numbers_yield_no_claim_values() -> None:
    (claim,) = read_claims("It takes " + "7" * 10_000 + " days.")
    assert isinstance(claim, Quantity)
    assert claim.values == frozenset()
    passage = Evidence(make_chunk("It takes " + "7" * 10_000 + " days, or 7."))
    assert not passage.holds(claim)
    (seven,) = read_claims("It takes 7 days.")
    assert passage.holds(seven)
    assert read_claims(" " * 30_000) == []
    claims = read_claims("It takes 7 days " + "and more " * 3000 + "or 8.")
    assert [claim for claim in claims if isinstance(claim, Quantity)] == [seven]
