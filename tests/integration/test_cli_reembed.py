"""``vectorforge collections reembed`` as a user runs it: a second model behind HTTP."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.command_line import VECTORFORGE, CommandLine, command_line
from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer
from vectorforge.threads import LoopThread

REEMBED = ("collections", "reembed")
QUESTIONS = ("How long does bread bake?", "How long is a chain oiled?")


@pytest.fixture
def run(private_dir: Callable[[str], Path]) -> Iterator[CommandLine]:
    """Run commands in a folder with one collection, "guides", and a model of 8 dimensions named "other"."""
    folder = private_dir("reembed")
    server = FakeEmbeddingsServer(dimension=8)
    thread = LoopThread(server, name="embeddings")
    settings = {
        "VECTORFORGE_EMBEDDING_BASE_URL": server.base_url,
        "VECTORFORGE_EMBEDDING_MODEL": "other",
        "VECTORFORGE_EMBEDDING_DIMENSION": "8",
    }
    (folder / "bread.md").write_text("# Bread\n\nBread bakes for two hours.\n")
    (folder / "bike.md").write_text("# Bike\n\nThe chain is oiled once a month.\n")
    (folder / "questions.jsonl").write_text("".join(json.dumps({"question": q}) + "\n" for q in QUESTIONS))
    with command_line(folder, settings) as run:
        run("ingest", "bread.md", "bike.md", "-c", "guides")
        yield run
    thread.close()


def test_embedding_model_is_switched_rolled_back_and_finished(run: CommandLine) -> None:  # N15
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


def test_failed_attempt_of_model_change_is_in_its_status(run: CommandLine) -> None:
    run(*REEMBED, "start", "guides", "--embedding-provider", "http", "--no-wait", "--yes")
    command = [str(VECTORFORGE), *REEMBED, "wait", "guides"]
    without = {name: value for name, value in run.environment.items() if name not in run.settings}
    with subprocess.Popen(command, env=without, stderr=subprocess.PIPE, text=True) as waiting:
        give_up_at = time.monotonic() + 60
        while not run.json(*REEMBED, "status", "guides")["failures"]:
            assert time.monotonic() < give_up_at
        waiting.terminate()
    status = run(*REEMBED, "status", "guides")
    assert "failed attempts: Unknown embedding provider" in status.stderr
    assert "Set VECTORFORGE_EMBEDDING_BASE_URL" in status.stderr


def test_wait_before_a_model_change_and_switch_without_queries_are_errors(run: CommandLine) -> None:
    assert "No embedding model switch is open" in run(*REEMBED, "wait", "guides", code=2).stderr
    run(*REEMBED, "start", "guides", "--embedding-provider", "http", "--yes")
    refused = run(*REEMBED, "switch", "guides", code=2)
    assert "No query of this collection is logged: pass `questions`" in refused.stderr
