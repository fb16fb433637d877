"""``vectorforge collections reembed`` as a user runs it: real processes, a second model behind HTTP."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.threads import LoopThread

VECTORFORGE = Path(sys.executable).with_name("vectorforge")
REEMBED = ("collections", "reembed")
QUESTIONS = ("How long does bread bake?", "How long is a chain oiled?")

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(private_dir: Callable[[str], Path]) -> Iterator[Run]:
    """Run commands in a folder with one collection, "guides", and a model of 8 dimensions named "other"."""
    folder = private_dir("reembed")
    server = FakeEmbeddingsServer(dimension=8)
    thread = LoopThread(server, name="embeddings")
    settings = {
        "VECTORFORGE_DATA_DIR": str(folder / "data"),
        "VECTORFORGE_EMBEDDING_BASE_URL": server.base_url,
        "VECTORFORGE_EMBEDDING_MODEL": "other",
        "VECTORFORGE_EMBEDDING_DIMENSION": "8",
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VECTORFORGE_")}

    def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [VECTORFORGE, *arguments],
            cwd=folder, env=inherited | settings, capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    (folder / "bread.md").write_text("# Bread\n\nBread bakes for two hours.\n")
    (folder / "bike.md").write_text("# Bike\n\nThe chain is oiled once a month.\n")
    (folder / "questions.jsonl").write_text("".join(json.dumps({"question": q}) + "\n" for q in QUESTIONS))
    run("ingest", "bread.md", "bike.md", "-c", "guides")
    yield run
    EmbeddedPostgres(folder / "data" / "postgres").stop(force=True)
    thread.close()


def test_embedding_model_is_switched_rolled_back_and_finished(run: Run) -> None:  # N15
    by_other = ("guides", "--embedding-provider", "http")
    seen = run(*REEMBED, "start", *by_other, "--dry-run")
    assert "http/other, 8 dimensions: 2 chunks" in seen.stderr
    run(*REEMBED, "status", "guides", code=2)  # nothing has begun
    refused = run(*REEMBED, "start", *by_other, code=2)
    assert "use --yes" in refused.stderr  # no terminal for the confirmation
    started = run(*REEMBED, "start", *by_other, "--yes")
    assert "ready: 2 of 2 chunks" in started.stdout

    compared = run(*REEMBED, "switch", "guides", "--questions", "questions.jsonl", "--min-overlap", "0")
    assert "2 questions: overlap@1" in compared.stdout
    assert "switched: 2 of 2" in compared.stdout
    assert "http/other" in run("collections", "list").stdout
    assert "ready: 2 of 2" in run(*REEMBED, "rollback", "guides").stdout
    assert "http/other" not in run("collections", "list").stdout

    run(*REEMBED, "switch", "guides", "--force")
    assert "The model change of guides has ended." in run(*REEMBED, "finish", "guides").stdout
    assert "http/other" in run("collections", "list").stdout
    assert "oiled once a month" in run("search", "How often is the chain oiled?", "-c", "guides").stdout
    run(*REEMBED, "cancel", "guides", code=2)  # it has ended
