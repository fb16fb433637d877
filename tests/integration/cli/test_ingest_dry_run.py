"""``vectorforge ingest --dry-run`` and collections with contexts on the command line."""

import json
import shutil
from typing import Any

import pytest

from tests.support.command_line import CommandLine

SENTENCE = "The committee of the harbour decided on many things, among them the price of salted herring. "


@pytest.fixture(scope="module")
def files(vectorforge: CommandLine) -> CommandLine:
    folder = vectorforge.folder / "minutes"
    folder.mkdir()
    for year in range(3):
        paragraphs = [f"In {1800 + year}, meeting {number}. {SENTENCE * 7}" for number in range(30)]
        (folder / f"{year}.txt").write_text("\n\n".join(paragraphs))
    (folder / "short.md").write_text("One line.")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    return vectorforge


def test_dry_run_stores_nothing_and_creates_no_collection(files: CommandLine) -> None:
    estimate = files.json("ingest", "minutes", "-c", "dry", "--dry-run")
    assert (estimate["documents"], estimate["failed"], estimate["unchanged"]) == (5, 1, 0)
    assert estimate["chunks"] == estimate["chunks_to_embed"] > 90
    assert (estimate["context_model"], estimate["context_calls"]) == (None, 0)
    assert "no collection" in files("collections", "show", "dry", code=2).stderr.lower()


def test_dry_run_counts_calls_tokens_and_cost_of_contexts(files: CommandLine) -> None:
    files("collections", "create", "minutes", "--contextual")
    prices = json.dumps({"claude-haiku-5-5": {"input": 1, "output": 5}})
    shown = files(
        "ingest", "minutes", "-c", "minutes", "--dry-run", "--json",
        VECTORFORGE_ANTHROPIC_API_KEY="sk-never-used", VECTORFORGE_ANTHROPIC_MODEL="claude-haiku-5-5",
        VECTORFORGE_ANTHROPIC_BASE_URL="http://127.0.0.1:9", VECTORFORGE_MODEL_PRICES=prices,
        VECTORFORGE_DEFAULT_LLM_PROVIDER="anthropic",
    )  # fmt: skip
    estimate: dict[str, Any] = json.loads(shown.stdout)
    assert estimate["context_model"] == "anthropic/claude-haiku-5-5"
    chunks = estimate["chunks_to_embed"] - 1  # that of the short document needs none
    assert estimate["context_calls"] == 3 * -(-(chunks // 3) // 25)
    assert estimate["context_completion_tokens"] == 60 * chunks
    sent, received = estimate["context_prompt_tokens"], estimate["context_completion_tokens"]
    assert sent > estimate["context_calls"] * 20_000 // 4
    assert estimate["context_cost_usd"] == pytest.approx((sent + 5 * received) / 1e6)
    assert estimate["embedding_cost_usd"] == 0


def test_dry_run_after_ingestion_finds_everything_unchanged(files: CommandLine) -> None:
    few = files.folder / "few"
    few.mkdir()
    for name in ("short.md", "broken.pdf"):
        shutil.copy(files.folder / "minutes" / name, few)
    (few / "1800.txt").write_text("\n\n".join(f"Meeting {number}. {SENTENCE * 7}" for number in range(5)))
    files("ingest", "few", "-c", "again", code=1)
    files("collections", "set", "again", "--contextual")
    changed = files.json("ingest", "few", "-c", "again", "--dry-run")
    assert (changed["unchanged"], changed["chunks_to_embed"] > 2) == (0, True)
    files("ingest", "few", "-c", "again", code=1)
    done = files.json("ingest", "few", "-c", "again", "--dry-run")
    assert (done["unchanged"], done["chunks_to_embed"], done["embedding_tokens"]) == (2, 0, 0)
    shown = files("ingest", "few", "-c", "again", "--dry-run")
    assert "again: 3 documents, of which 0 are new or changed, 2 unchanged and 1 unreadable." in shown.stdout
    assert files.json("collections", "show", "again")["contextual"] is True
    assert files.json("collections", "set", "again", "--no-contextual")["contextual"] is False


def test_dry_run_names_unreadable_and_skipped_files(files: CommandLine) -> None:
    mixed = files.folder / "unread"
    mixed.mkdir()
    (mixed / "empty.txt").write_text("")
    (mixed / "data.bin").write_bytes(b"\0\1")
    shown = files("ingest", "unread", "-c", "unread", "--dry-run")
    assert "./unread/empty.txt: The document is empty.\n" in shown.stderr
    assert "skipped ./unread/data.bin: .bin files cannot be read.\n" in shown.stderr


def test_dry_run_rejects_profiles_and_databases(files: CommandLine) -> None:
    for other in (["--profile", "7"], ["--from-postgres", "env:NOWHERE"]):
        refused = files(
            "ingest", *([] if "env:NOWHERE" in other else ["minutes"]), *other, "--dry-run", code=2
        )
        assert "--dry-run" in refused.stderr or "Only files" in refused.stderr
