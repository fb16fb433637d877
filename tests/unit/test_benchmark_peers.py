"""The comparison with other frameworks: the job, the figures, and failing contestants."""

from pathlib import Path

import numpy as np
import pytest
from figures.scale import SHARES, Generator, Holding, Scale, holdings, text
from peers import comparison, environments, job, report, starting, storing
from peers.database import Loaded
from peers.environments import InstallationError
from peers.processes import Asked, ContestantError, WorkerProcess
from peers.roster import DENSE, FLOOR, ROSTER, Entry


def test_chunks_are_deterministic_and_have_category_shares() -> None:
    chunks = job.chunks(2_000)
    assert chunks[1_000:] == job.chunks(1_000, first=1_000)
    assert len({chunk.id for chunk in chunks}) == 2_000
    assert all(len(chunk.text) <= job.CHUNK_CHARS for chunk in chunks)
    for name, share in job.CATEGORIES.items():
        found = sum(chunk.metadata["category"] == name for chunk in chunks) / len(chunks)
        assert found == pytest.approx(share, abs=0.05)


def test_questions_are_unique_and_hold_no_token_mark() -> None:
    questions = [job.question(number) for number in range(500)]
    assert len(set(questions)) == 500
    assert not any(job.TOKEN_MARK in text for text in (*questions, *(c.text for c in job.chunks(500))))


def test_ratios_are_medians_of_per_round_ratios() -> None:
    def asked(ms: float) -> Asked:
        return Asked(latency_s=[ms / 1000] * 4, wall_s=ms / 250, cpu_s=ms / 500, sources=10)

    # The machine was busy in the second round: both were slower, their ratio was the same.
    own, floor = [asked(20), asked(200), asked(30)], [asked(10), asked(100), asked(10)]
    figures = comparison._figures(own, floor)
    assert figures["p50_ms"] == pytest.approx(30)
    assert figures["p50_ms_ratio"] == pytest.approx(2)
    assert figures["cpu_ms_ratio"] == pytest.approx(2)
    assert figures["per_s_ratio"] == pytest.approx(0.5)
    assert figures["sources"] == 10
    assert "first_token_p50_ms" not in figures


def test_tables_list_every_contestant() -> None:
    stream = Asked([0.02] * 2, [0.01] * 2, 0.04, 0.02)
    whole = Asked([0.02] * 2, [], 0.04, 0.02, sources=10)
    rounds = {
        name: {case.name: [stream if case.stream else whole] for case in comparison.CASES}
        for name in (FLOOR, "vectorforge")
    }
    entries = [ROSTER[FLOOR], ROSTER["vectorforge"]]
    summary = comparison._summary(entries, rounds, {FLOOR: 80.0, "vectorforge": 120.0})
    tables = report.tables(summary)
    assert len(tables) == len(comparison.CASES) + 1
    for table in tables:
        assert [row[0] for row in table.rows] == [entry.title for entry in entries]


def test_startup_and_ingestion_are_compared_per_round() -> None:
    runs = {
        "raw_sdk": [{"first_answer_s": 1.0}, {"first_answer_s": 4.0}],
        "vectorforge": [{"first_answer_s": 0.5}, {"first_answer_s": 2.0}],
    }
    assert starting._medians(runs["vectorforge"], runs)["first_answer_to_raw_sdk"] == 0.5
    stored = {
        "langchain": [{"wall_s": 20.0, "cpu_s": 1.0, "database_cpu_s": 1.0}],
        "vectorforge": [{"wall_s": 1.0, "cpu_s": 0.1, "database_cpu_s": 0.2}],
    }
    figures = storing._figures(stored["vectorforge"], stored, 1_000)
    assert figures["chunks_per_s"] == 1_000
    assert figures["speed_to_langchain"] == 20
    assert figures["cpu_us"] == pytest.approx(100)


def test_service_settings_are_passed_to_vectorforge_only() -> None:
    settings = ROSTER["vectorforge"].variables("postgresql://a", "http://b/v1")
    assert settings["PEER_COLLECTION"] == DENSE
    assert settings["VECTORFORGE_OPENAI_BASE_URL"] == "http://b/v1"
    assert ROSTER["langchain"].variables("postgresql://a", "http://b/v1") == {}


def test_failed_contestant_start_raises_error_with_log_path(tmp_path: Path) -> None:
    import sys

    entry = Entry("nobody", "Nobody", "nobody", None)
    with pytest.raises(ContestantError, match=r"Nobody: it ended; see .*nobody\.module\.log"):
        WorkerProcess(entry, Path(sys.executable), {}, tmp_path)
    assert "No module named 'peers.contestants.nobody'" in (tmp_path / "nobody.module.log").read_text()


def test_environment_without_uv_raises_installation_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV", str(tmp_path / "no-uv"))
    with pytest.raises(InstallationError, match="no-uv is missing"):
        environments.interpreter(tmp_path, "langchain", lambda _: None)


def test_loaded_state_persists_between_runs(tmp_path: Path) -> None:
    Loaded(tmp_path).put("langchain", {"chunks": 10})
    assert Loaded(tmp_path).has("langchain", {"chunks": 10})
    assert not Loaded(tmp_path).has("langchain", {"chunks": 20})
    Loaded(tmp_path).forget("langchain")
    assert Loaded(tmp_path).facts("langchain") is None


def test_small_tenant_vectors_cluster_apart_from_large_tenant() -> None:
    generator = Generator()
    small = Holding("small", 50, seed=1, center=3)
    vectors, others = small.vectors(generator), Holding("large", 2_000, seed=2).vectors(generator)
    np.testing.assert_array_equal(vectors, small.vectors(Generator()))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    among, across = vectors @ vectors.T, vectors @ others.T
    assert among.mean() > across.mean() + 0.3
    questions = small.questions(generator, 5)
    assert not (questions[:, None] == vectors[None]).all(axis=2).any()


def test_filters_match_their_nominal_share() -> None:
    metadata = Holding("large", 20_000, seed=11).metadata()
    for key, values in SHARES.items():
        share = sum(facts[key] == 1 for facts in metadata) / len(metadata)
        assert share == pytest.approx(1 / values, rel=0.5)
    assert [h.chunks for h in holdings(Scale(1_000))] == [1_000, 10, 100, 1_000]
    assert "77" in text(77, 5).split()
