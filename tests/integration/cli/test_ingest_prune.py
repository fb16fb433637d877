"""Documents of files that no longer exist, after ``vectorforge ingest`` of their folder."""

import json
import os
from pathlib import Path
from shutil import rmtree

import pytest

from tests.support.command_line import CommandLine


def sources_of(vectorforge: CommandLine, collection: str, tenant: str = "local") -> set[str]:
    listed = vectorforge(
        "documents", "list", "-c", collection, "--json", VECTORFORGE_LOCAL_TENANT=tenant
    ).stdout
    found = [Path(document["source"]) for document in json.loads(listed)["documents"]]
    return {source.relative_to(vectorforge.folder.resolve()).as_posix() for source in found}


@pytest.fixture(scope="module")
def shrunk(vectorforge: CommandLine) -> CommandLine:
    """Ingest files of two folders, into two collections and as two tenants, and delete most of them."""
    for name in ("a.md", "b.md", "sub/c.md", "emptied.md"):
        (vectorforge.folder / "notes" / name).parent.mkdir(parents=True, exist_ok=True)
        (vectorforge.folder / "notes" / name).write_text(f"Note {name}.")
    (vectorforge.folder / "notes" / os.fsdecode(b"caf\xe9.md")).write_text("A note in Latin-1.")
    lines = [json.dumps({"id": name, "text": f"Line {name}."}) for name in "xy"]
    (vectorforge.folder / "notes" / "lines.jsonl").write_text("\n".join(lines))
    (vectorforge.folder / "notes2").mkdir()
    (vectorforge.folder / "notes2" / "d.md").write_text("Note d.")
    vectorforge("ingest", "notes", "notes2", "-c", "notes")
    vectorforge("ingest", "notes/b.md", "-c", "elsewhere")
    vectorforge("ingest", "notes/b.md", "-c", "notes", VECTORFORGE_LOCAL_TENANT="other")
    for name in ("notes/b.md", "notes/lines.jsonl", "notes2/d.md"):
        (vectorforge.folder / name).unlink()
    rmtree(vectorforge.folder / "notes" / "sub")
    (vectorforge.folder / "notes" / "emptied.md").write_text("")
    return vectorforge


def test_ingest_without_prune_does_not_look_for_documents_without_files(shrunk: CommandLine) -> None:
    assert shrunk.json("ingest", "notes", "-c", "notes", code=1)["missing_documents"] is None
    assert len(sources_of(shrunk, "notes")) == 8


def test_prune_without_yes_stores_and_deletes_nothing(shrunk: CommandLine) -> None:
    (shrunk.folder / "notes" / "new.md").write_text("A new note.")
    assert "--yes" in shrunk("ingest", "notes", "-c", "notes", "--prune", code=2).stderr
    (shrunk.folder / "notes" / "new.md").unlink()
    assert len(sources_of(shrunk, "notes")) == 8


@pytest.mark.parametrize("other", [["notes/a.md"], ["notes", "--dry-run"], ["notes", "--profile", "7"]])
def test_prune_without_folder_of_collection_is_rejected(shrunk: CommandLine, other: list[str]) -> None:
    assert "--prune needs a folder" in shrunk("ingest", *other, "--prune", "--yes", code=2).stderr


def test_prune_deletes_only_documents_of_that_folder_collection_and_tenant(shrunk: CommandLine) -> None:
    done = shrunk("ingest", "notes", "-c", "notes", "--prune", "--yes", code=1)
    assert "Deleted documents of files that no longer exist: 4." in done.stderr.splitlines()
    assert sources_of(shrunk, "notes") == {
        "notes/a.md",
        "notes/emptied.md",
        "notes/caf\ufffd.md",
        "notes2/d.md",
    }
    assert sources_of(shrunk, "elsewhere") == {"notes/b.md"}
    assert sources_of(shrunk, "notes", "other") == {"notes/b.md"}
    again = shrunk.json("ingest", "notes", "-c", "notes", "--prune", "--yes", code=1)
    assert (again["missing_documents"], again["pruned_documents"]) == (0, 0)
