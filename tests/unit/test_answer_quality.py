"""The quality of answers: figures, counters, logs and display."""

import logging
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rag.chunks import make_chunk
from tests.support.vendors.scripted_llm import ScriptedLLM
from tests.unit.query_setup import Setup
from vectorforge.llm.providers.extractive import NO_ANSWER
from vectorforge.llm.providers.words import stem, terms
from vectorforge.pipeline.citations.wording import assess, completeness, relevance
from vectorforge.pipeline.types import CitationEvent, DoneEvent, TokenEvent, UsageEvent

WATER = "Water boils at 100 degrees."


def test_relevance_equals_share_of_answer_words_in_context() -> None:  # D-039
    assert relevance("Water boils quickly, always", [WATER]) == 0.5
    assert relevance("Water boils at 100 degrees [Source 1].", [WATER]) == 1.0  # a label is not a word
    assert relevance("水が沸騰する", ["水が沸騰する温度"]) == 1.0
    assert relevance("ÉTÉ", ["ete"]) == 1.0


@pytest.mark.parametrize("answer", ["", "  ", "[Source 1]", "…"])
def test_empty_answer_scores_zero(answer: str) -> None:  # C35
    quality = assess("When does water boil?", answer, [WATER])
    assert (quality.relevance, quality.completeness, quality.low) == (0.0, 0.0, True)


def test_completeness_equals_share_of_query_answered_from_chunks() -> None:  # C35
    question = "When does water boil, and ice melt?"
    assert completeness(question, "Water boils at 100 degrees.", [WATER]) == 0.5
    assert completeness(question, "Water boils, ice melts.", [WATER]) == 0.5  # unsupported
    assert completeness(question, "Water boils, ice melts.", [WATER, "Ice melts."]) == 1.0
    assert completeness("Why?", "Because.", [WATER]) == 0.0
    assert completeness("", "", []) == 0.0


async def test_low_quality_answer_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:  # D-039
    setup = Setup(llm=ScriptedLLM(["Kings and queens lived long ago [Source 7]."]))
    with caplog.at_level(logging.WARNING, "vectorforge.pipeline.citations.wording"):
        result = (await setup.events())[-1]
    assert isinstance(result, DoneEvent)
    quality = result.result.quality
    assert quality is not None
    assert (quality.relevance, quality.low) == (0.0, True)
    assert setup.metrics.total("pipeline.answers.low_quality") == 1
    (record,) = caplog.records
    assert "relevance 0.00" in record.getMessage()
    assert "Kings" not in record.getMessage()
    logged = setup.log.rows[-1].quality
    assert logged is not None
    assert logged["low"] is True


async def test_unsupported_citations_mark_answer_low_quality() -> None:
    setup = Setup(llm=ScriptedLLM(["Water boils at 90 degrees [Source 1]."]))
    result = await setup.service.query("When?", (await setup.events())[0].collection_id)  # type: ignore[union-attr]
    assert result.quality is not None
    assert (result.quality.unsupported_citations, result.quality.low) == (1, True)


@pytest.mark.parametrize("answer", [NO_ANSWER, "Water boils at 100 degrees [Source 1]."])
async def test_good_answers_and_refusals_are_not_low_quality(answer: str) -> None:
    setup = Setup(llm=ScriptedLLM([answer]))
    done = (await setup.events("When does water boil?"))[-1]
    assert isinstance(done, DoneEvent)
    assert done.result.quality is not None
    assert not done.result.quality.low
    assert setup.metrics.total("pipeline.answers.low_quality") == 0


async def test_answer_without_chunks_has_no_quality() -> None:
    setup = Setup(found=[])
    done = (await setup.events())[-1]
    assert isinstance(done, DoneEvent)
    assert done.result.quality is None


async def test_verdict_events_follow_their_sentence_and_precede_usage() -> None:  # N10
    pieces = ["Water boils at ", "100 [Source 1] degrees", ". Ice", " melts at 5 degrees. ", "[Source 2]"]
    setup = Setup([make_chunk(WATER), make_chunk("Ice melts at 0 degrees.")], ScriptedLLM(pieces))
    events = await setup.events()
    shape = [
        event.text
        if isinstance(event, TokenEvent)
        else (event.citation.source_number, event.citation.verdict)
        if isinstance(event, CitationEvent)
        else type(event)
        for event in events[2:-1]
    ]
    assert shape == [*pieces[:3], (1, "supported"), *pieces[3:], (2, "unsupported"), UsageEvent]
    done = events[-1]
    assert isinstance(done, DoneEvent)
    assert [c.verdict for c in done.result.citations] == ["supported", "unsupported"]
    assert done.result.citations == [e.citation for e in events if isinstance(e, CitationEvent)]


@given(st.from_regex(r"[a-z0-9]{1,12}", fullmatch=True))
def test_stem_retains_first_three_letters(word: str) -> None:  # minimum of words to judge
    assert stem(word)[:3] == word[:3]


@given(st.lists(st.text(alphabet="abcdeings .é水火-'_7", max_size=60), max_size=4), st.data())
def test_quality_figures_match_their_definition(passages: list[str], data: st.DataObject) -> None:  # D-039
    text = st.text(alphabet="abcdeings .é水火-'_7", max_size=60)
    question, answer = data.draw(text), data.draw(text)
    query_terms, joined = terms(question), "\n".join(passages)
    expected = len(query_terms & terms(answer) & terms(joined)) / len(query_terms) if query_terms else 0.0
    assert completeness(question, answer, passages) == expected
    words, held = slow_words(answer), slow_words(joined)
    assert relevance(answer, passages) == (len(words & held) / len(words) if words else 0.0)


def slow_words(text: str) -> set[str]:
    """Return the words by definition, letter by letter."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    found: set[str] = set()
    for word in re.findall(r"[^\W_]+", plain):
        runs = re.findall("[水火]+", word)
        found.update(run[i : i + 2] for run in runs for i in range(max(1, len(run) - 1)))
        if not runs:
            found.add(word)
    return found
