"""The benchmark's searches by size and selectivity, at a size with known answers."""

from pathlib import Path

from figures import million
from figures.scale import Scale
from figures.selectivity import TOP_K, measure_scale, tables
from peers.database import SERVICE_DATABASE, BenchmarkDatabase, Loaded

from vectorforge.local.postgres import EmbeddedPostgres


async def test_benchmark_of_small_collection_measures_all_rows_and_reuses_data(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    database = BenchmarkDatabase(postgres_server, "127.0.0.1", Loaded(tmp_path))
    scale = Scale(600, words=12)
    found = await measure_scale(database, scale, questions=4)
    rows = {row["what"]: row for row in found}
    assert rows["no filter"]["matching"] == 600
    assert rows["tenant of 10 clustered"]["rows_wanted"] == 10
    for what, row in rows.items():
        assert row["rows_min"] == row["rows_wanted"] == min(TOP_K, row["matching"]), what
        # So few are all compared: the results are those of exact computation.
        assert row["recall"] == (None if "words" in what else 1.0), what
    assert 200 < rows["filter for 50 %"]["matching"] < 400
    assert rows["words only"]["p50_ms"] > 0
    [table] = tables(found)
    assert [row[0] for row in table.rows] == list(rows)

    stored = database.loaded.facts(scale.database)
    again = await measure_scale(database, scale, questions=2)
    assert database.loaded.facts(scale.database) == stored, "the same collections"
    assert [row["matching"] for row in again] == [row["matching"] for row in found]


async def test_benchmark_of_a_million_at_small_size_reports_build_and_no_short_result(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    database = BenchmarkDatabase(postgres_server, "127.0.0.1", Loaded(tmp_path))
    found = await million.measure_million(database, Scale(700, words=12), questions=2)
    assert found["build"]["chunks"] == 700 + 10 + 100
    assert found["build"]["index_memory_bytes"] > 10_000_000
    assert found["random"]["short"] == 0
    assert 0 < found["random"]["few_match"] < found["random"]["searches"] == 100
    assert [table.title for table in million.tables(found)] == [
        "Build",
        "700 chunks, top 10",
        "Random searches",
    ]


def test_benchmark_empties_the_caches_of_the_present_schema(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    database = BenchmarkDatabase(postgres_server, "127.0.0.1", Loaded(tmp_path))
    database.migrated(SERVICE_DATABASE, [])
    database.forget_answers()
