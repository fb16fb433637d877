"""The batch that a search takes from an index, by what earlier searches with the same filter needed."""

import pytest

from vectorforge.vectorstore.search.search import IndexedCollection

FILTER, DEPTH, MOST = "f.metadata ...", 40, 200


def batch(facts: IndexedCollection, filter_sql: str = FILTER) -> int:
    return facts.ef_search(MOST, filter_sql, DEPTH)


def test_batch_without_earlier_searches_grows_with_the_index() -> None:
    assert batch(IndexedCollection(3_000, 3_000)) == 48
    assert batch(IndexedCollection(10_000, 10_000)) == 63
    assert batch(IndexedCollection(10_000, 40_000)) == 126
    assert batch(IndexedCollection(10_000, 10**7)) == MOST


def test_short_batch_is_widened_for_its_filter_alone() -> None:
    facts = IndexedCollection(10_000, 10_000)
    facts.note_short(FILTER, batch=80, matching=40)
    assert batch(facts) == 100
    assert batch(facts, "another filter") == 63


@pytest.mark.parametrize("matching", [10, 20, 40])
def test_batch_converges_to_a_quarter_more_than_is_needed(matching: int) -> None:
    facts = IndexedCollection(10_000, 10_000)
    facts.note_short(FILTER, batch=80, matching=matching)
    for needed in [130, 150] * 20:
        facts.note_enough(FILTER, needed, DEPTH)
    assert batch(facts) == pytest.approx(140 * 1.25, abs=3)


def test_sufficient_batches_do_not_widen_a_filter_that_was_never_short() -> None:
    facts = IndexedCollection(10_000, 10_000)
    facts.note_enough(FILTER, 79, DEPTH)
    assert batch(facts) == 63
