"""The doctor's advice on indexes, dead rows and statistics."""

from uuid import UUID

import pytest

from vectorforge.cli.doctor.database_checks import dead_rows_advice, index_advice, statistics_advice
from vectorforge.db.schema.vector_indexes import IndexState, OwnIndex, SpaceIndex, TableStatistics

GIB = 2**30


def space(
    largest: int,
    state: IndexState,
    *,
    index_bytes: int = 0,
    scans: int = 0,
    possible: bool = True,
    own: IndexState = IndexState.NONE,
) -> SpaceIndex:
    collection = OwnIndex(UUID(int=1), largest, is_large=largest > 10_000, state=own, index_bytes=0, scans=0)
    return SpaceIndex(
        "cosine_384",
        largest,
        largest,
        state,
        0,
        index_bytes,
        possible=possible,
        vector_bytes=1536,
        scans=scans,
        own=(collection,),
    )


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (space(10_000, IndexState.NONE), None),
        (space(10_001, IndexState.NONE), "missing; queries compare up to 10001 vectors"),
        (space(10_001, IndexState.NONE, possible=False), None),
        (space(10_001, IndexState.NONE, own=IndexState.INVALID), "aborted build"),
        (space(10_000, IndexState.INVALID), "aborted build"),
        (space(10_001, IndexState.READY, index_bytes=10**8), "missing"),
        (space(10_001, IndexState.NONE, index_bytes=10**8, own=IndexState.READY), None),
        (
            space(10_001, IndexState.NONE, index_bytes=GIB + 1, scans=5, own=IndexState.READY),
            "shared_buffers only 1074 MB",
        ),
        (space(10_000, IndexState.READY, index_bytes=10**8), "unused by any search"),
        (space(10_000, IndexState.READY, index_bytes=10**8, scans=1), None),
        (space(0, IndexState.READY, index_bytes=8192), None),
    ],
)
def test_index_advice_warns_about_missing_large_or_unused_index(index: SpaceIndex, words: str | None) -> None:
    found = list(index_advice([index], GIB))
    assert [check.status for check in found] == ([] if words is None else ["warn"])
    for check in found:
        assert words is not None
        assert words in check.detail
        assert check.remedy


def table(live: int, *, dead: int = 0, changed: int = 0, analyzed: bool = True) -> TableStatistics:
    return TableStatistics("chunks", live, dead, changed, analyzed)


def test_dead_rows_over_threshold_advise_vacuum() -> None:
    assert list(dead_rows_advice([table(100_000, dead=40_000), table(0, dead=10_000)])) == []
    [check] = dead_rows_advice([table(100_000, dead=40_001)])
    assert check.remedy.startswith("VACUUM (ANALYZE) vectorforge.chunks;")


def test_stale_statistics_advise_analyze() -> None:
    well = [table(10_000, analyzed=False), table(10_001), table(20_000, changed=10_000)]
    assert list(statistics_advice(well)) == []
    for bad in (table(10_001, analyzed=False), table(20_000, changed=10_001)):
        [check] = statistics_advice([bad])
        assert check.remedy.endswith("within minutes; if it does not: ANALYZE vectorforge.chunks;")
