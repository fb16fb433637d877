"""What ``vectorforge doctor`` advises on the indexes, the dead rows and the statistics of the database."""

from collections.abc import Iterator

from vectorforge.cli.doctor.check import Check
from vectorforge.db.schema.vector_indexes import (
    IndexState,
    SpaceIndex,
    TableStatistics,
    list_indexes,
    table_statistics,
)

_SMALL_ROWS = 10_000
"""Up to these, autovacuum and the planner do well without advice."""
_DEAD_SHARE, _CHANGED_SHARE = 0.4, 0.5
"""Autovacuum begins at a fifth of dead rows, and analyses after a tenth: more says that it does not keep up.
https://www.postgresql.org/docs/current/routine-vacuuming.html#AUTOVACUUM"""
_UNUSED_BYTES = 10_000_000


async def storage_checks(conninfo: str, *, larger_than: int) -> list[Check]:
    """What is well and what is not, with what to do; at least one each for indexes, dead rows and statistics.

    Args:
        conninfo: Of the role that owns the schema.
        larger_than: Vectors of a collection above which an index pays.

    Raises:
        DatabaseError: It cannot be read.
    """
    spaces = await list_indexes(conninfo)
    tables, buffers = await table_statistics(conninfo)
    return [
        *(list(index_advice(spaces, larger_than, buffers)) or [_all_well(spaces)]),
        *(list(dead_rows_advice(tables)) or [Check("dead rows", "ok", "few enough in every table")]),
        *(list(statistics_advice(tables)) or [Check("statistics", "ok", "no large table is without")]),
    ]


def _all_well(spaces: list[SpaceIndex]) -> Check:
    indexed = sum(index.state is IndexState.READY for index in spaces)
    return Check("vector indexes", "ok", f"{indexed} of {len(spaces)} partitions have one, none lacks it")


def index_advice(spaces: list[SpaceIndex], larger_than: int, shared_buffers: int) -> Iterator[Check]:
    """Partitions that lack an index, have a broken or a useless one, or one that is larger than the cache."""
    for index in spaces:
        if index.state is IndexState.INVALID:
            detail = f"{index.space}: being built, or left half-built; it slows down every writer"
            yield _warn(detail, f"When no build runs: `vectorforge index build {index.space}`.")
        elif index.state is IndexState.NONE and index.pays(larger_than):
            detail = f"{index.space}: none, so questions compare up to {index.largest} vectors"
            yield _warn(detail, "Run `vectorforge index build`.")
        elif index.state is IndexState.READY and index.index_bytes > shared_buffers:
            detail = f"{index.space}: {_mb(index.index_bytes)}, shared_buffers only {_mb(shared_buffers)}"
            yield _warn(detail, "Give the server more memory, or new collections --vector-index half.")
        if _is_useless(index, larger_than):
            detail = f"{index.space}: {_mb(index.index_bytes)} that no search has used"
            remedy = (
                f"DROP INDEX CONCURRENTLY vectorforge.embeddings_{index.space}_hnsw makes writing faster."
            )
            yield _warn(detail, remedy)


def _is_useless(index: SpaceIndex, larger_than: int) -> bool:
    large = index.index_bytes > _UNUSED_BYTES
    return index.state is IndexState.READY and large and not index.scans and not index.pays(larger_than)


def dead_rows_advice(tables: list[TableStatistics]) -> Iterator[Check]:
    """Tables of which autovacuum does not keep up."""
    for table in tables:
        if table.dead > _SMALL_ROWS and table.dead > _DEAD_SHARE * table.live:
            remedy = f"VACUUM (ANALYZE) vectorforge.{table.name}; see whether a transaction is open for long."
            yield Check("dead rows", "warn", f"{table.name}: {table.dead} beside {table.live}", remedy)


def statistics_advice(tables: list[TableStatistics]) -> Iterator[Check]:
    """Large tables whose planner's statistics are missing or far behind."""
    for table in tables:
        if table.live <= _SMALL_ROWS:
            continue
        remedy = f"ANALYZE vectorforge.{table.name};"
        if not table.analyzed:
            yield Check("statistics", "warn", f"{table.name}: none for {table.live} rows", remedy)
        elif table.changed > _CHANGED_SHARE * table.live:
            detail = f"{table.name}: {table.changed} of {table.live} rows changed since"
            yield Check("statistics", "warn", detail, remedy)


def _warn(detail: str, remedy: str) -> Check:
    return Check("vector indexes", "warn", detail, remedy)


def _mb(size: int) -> str:
    return f"{size / 1e6:.0f} MB"
