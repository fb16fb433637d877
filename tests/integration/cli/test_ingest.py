"""Files and folders ingested on the command line."""

import asyncio
import json
import os
import re
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.support.command_line import VECTORFORGE, CommandLine
from tests.support.formats.scans import Sheet, file_of, pdf_of, prose
from tests.support.postgres.faulty_relay import TcpRelay
from vectorforge.db.login import with_host
from vectorforge.ingestion.group import GROUP_BYTES, SMALL_BYTES
from vectorforge.local.postgres import EmbeddedPostgres


def collections_of(vectorforge: CommandLine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = vectorforge.json("collections", "list")["collections"]
    return found


def test_ingest_of_unchanged_file_embeds_nothing(handbook: CommandLine) -> None:
    again = handbook.json("ingest", "handbook.md", "-c", "handbook", "-m", "team=hr")
    assert (again["unchanged"], again["chunks_added"]) == (1, 0)


# C-009 C17: files of a profile, found by it and by no other
def test_ingest_into_profile_is_found_by_that_profile_only(vectorforge: CommandLine) -> None:
    first = vectorforge.json("ingest", "handbook.md", "--profile", "7", "--source-type", "document")
    assert (first["collection"], first["succeeded"], first["failed"]) == ("profiles", 1, 0)
    again = vectorforge.json("ingest", "handbook.md", "--profile", "7", "--source-type", "document")
    assert (again["unchanged"], again["chunks_added"]) == (1, 0)
    found = vectorforge.json("search", "Who approves refunds?", "--profile", "7")
    assert {result["metadata"]["source_type"] for result in found["results"]} == {"document"}
    answer = vectorforge.json("ask", "Who approves refunds?", "--profile", "7")
    assert "finance team" in answer["answer"]
    assert vectorforge.json("search", "Who approves refunds?", "--profile", "8", code=1)["results"] == []
    assert "profile_id is required" in vectorforge("search", "refunds", "-c", "profiles", code=2).stderr
    refused = vectorforge("ingest", "handbook.md", "--profile", "7", "-c", "handbook", code=2)
    assert "own collection" in refused.stderr


def test_ingest_of_jsonl_stores_one_document_per_line(vectorforge: CommandLine) -> None:
    rows = [
        {"doc_id": "a", "text": "Alpha is the first letter."},
        {"doc_id": "b", "text": "Beta follows."},
    ]
    lines = [*map(json.dumps, rows), "not json"]
    (vectorforge.folder / "corpus.jsonl").write_text("\n".join(lines))
    summary = vectorforge.json("ingest", "corpus.jsonl", "-c", "corpus", code=1)
    assert (summary["documents"], summary["succeeded"], summary["failed"]) == (3, 2, 1)
    assert summary["failures"][0]["source"].endswith("/corpus.jsonl#3")
    assert vectorforge.json("documents", "list", "-c", "corpus")["total"] == 2
    assert "./corpus.jsonl#a\t" in vectorforge("documents", "list", "-c", "corpus").stdout
    vectorforge("documents", "delete", "./corpus.jsonl#a", "-c", "corpus", "--yes")
    assert vectorforge.json("documents", "list", "-c", "corpus")["total"] == 1


def test_ingest_from_other_directory_updates_the_same_document(vectorforge: CommandLine) -> None:
    a, b = (CommandLine(vectorforge.folder / name, vectorforge.data_dir) for name in "ab")
    for cli in (a, b):
        cli.folder.mkdir()
        (cli.folder / "README.md").write_text(f"This is the text of {cli.folder}.")
        assert cli.json("ingest", "README.md", "-c", "two")["succeeded"] == 1
    for path in ("../a/README.md", "../a", str(a.folder)):
        assert b.json("ingest", path, "-c", "two")["unchanged"] == 1
    sources = {d["source"] for d in b.json("documents", "list", "-c", "two")["documents"]}
    assert sources == {str((cli.folder / "README.md").resolve()) for cli in (a, b)}


def test_ingest_of_folder_reports_skipped_files_and_titles_documents(vectorforge: CommandLine) -> None:
    folder = vectorforge.folder / "mixed"
    (folder / "guide").mkdir(parents=True)
    for name in ("guide/setup.txt", "slides.ppt", "photo.PNG", ".hidden.md"):
        (folder / name).write_text("Press the green button.")
    (folder / "corpus.jsonl").write_text('{"id": "1", "text": "A line."}')
    (folder / "venv").mkdir()
    summary = vectorforge.json("ingest", "mixed", "-c", "skips")
    skipped = {
        Path(s["source"]).relative_to(folder.resolve()).as_posix(): s["reason"]
        for s in summary["skipped_files"]
    }
    assert skipped == {
        ".hidden.md": "hidden",
        "photo.PNG": "images are read with --ocr only",
        "slides.ppt": ".ppt files cannot be read. Save it as .pptx.",
        "venv": "folder of installed or compiled code",
    }
    assert (summary["succeeded"], summary["failed"]) == (2, 0)
    listed = vectorforge.json("documents", "list", "-c", "skips")["documents"]
    assert {d["title"] for d in listed} == {"guide/setup.txt", None}
    output = vectorforge("ingest", "mixed", "-c", "skips").stderr
    assert "skipped ./mixed/slides.ppt: .ppt files cannot be read. Save it as .pptx." in output
    nothing = vectorforge("ingest", "mixed/venv", "-c", "skips", code=2).stderr
    assert "No file to read in mixed/venv." in nothing
    assert "file-types.md" in nothing
    unmatched = vectorforge("ingest", "mixed", "-c", "skips", "--glob", "*.pdff", code=2).stderr
    assert "error: No file to read in mixed matches --glob '*.pdff'. Skipped 2: " in unmatched


def test_small_document_before_larger_ones_is_stored_before_them(vectorforge: CommandLine) -> None:
    name = f"mixed-{uuid4().hex}"
    folder = vectorforge.folder / name
    folder.mkdir()
    (folder / "00.md").write_text("Refunds take a week.")
    for number in range(1, 25):
        (folder / f"{number:02}.md").write_text(f"Rule {number} of many about refunds. " * 300)
    vectorforge("ingest", name, "-c", name)
    stored = vectorforge.json("documents", "list", "-c", name)["documents"]
    names = [Path(one["source"]).name for one in sorted(stored, key=lambda one: str(one["created_at"]))]
    assert len(names) == 25
    assert names.index("00.md") < 15  # four are ingested at a time, in any order


def test_small_documents_over_the_bytes_of_a_group_are_stored_in_two(vectorforge: CommandLine) -> None:
    folder = vectorforge.folder / "padded"
    folder.mkdir()
    for number in range(GROUP_BYTES // SMALL_BYTES + 1):
        (folder / f"{number}.md").write_text(f"Rule {number}.".ljust(SMALL_BYTES))
    vectorforge("ingest", "padded", "-c", "padded")
    stored = vectorforge.json("documents", "list", "-c", "padded")["documents"]
    assert len({one["created_at"] for one in stored}) == 2  # the time of the transaction


def test_ingest_of_unreadable_file_prints_the_reason(vectorforge: CommandLine) -> None:
    for name in ("empty.md", "empty.zip"):
        (vectorforge.folder / name).write_text("")
    done = vectorforge("ingest", "empty.md", "empty.zip", "handbook.md", "-c", "mixed", code=1)
    assert "error: ./empty.md: The document is empty." in done.stderr
    assert "error: ./empty.zip: The document is empty." in done.stderr
    assert done.stdout.splitlines()[1].split("\t")[:5] == ["mixed", "3", "1", "0", "2"]


async def test_ingest_of_file_without_permission_stores_the_others(vectorforge: CommandLine) -> None:
    (vectorforge.folder / "closed.md").write_text("The safe is behind the picture.")
    (vectorforge.folder / "closed.md").chmod(0)
    server = EmbeddedPostgres(vectorforge.data_dir / "postgres")
    server.start()
    vectorforge.process("migrate")
    # root reads every file, and the server's folder, unless it lacks these capabilities
    as_anyone = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    arguments = [*as_anyone, str(VECTORFORGE), "ingest", "closed.md", "handbook.md", "-c", "closed"]
    async with TcpRelay("127.0.0.1", server.data_dir / ".s.PGSQL.5432") as relay:
        url = with_host(server.app_url, host=relay.host, port=relay.port)
        process = await asyncio.create_subprocess_exec(
            *arguments, cwd=vectorforge.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**vectorforge.environment, "VECTORFORGE_DATABASE_URL": url},
        )  # fmt: skip
        out, err = await process.communicate()
    assert b"error: ./closed.md: The file cannot be read (PermissionError)." in err
    assert out.decode().splitlines()[1].split("\t")[:5] == ["closed", "2", "1", "0", "1"]
    assert process.returncode == 1


def test_ingest_of_too_large_file_names_the_setting(vectorforge: CommandLine) -> None:
    setting = {"VECTORFORGE_MAX_DOCUMENT_BYTES": "10"}
    done = vectorforge("ingest", "handbook.md", "-c", "large", code=1, **setting)
    assert "larger than 10 bytes (VECTORFORGE_MAX_DOCUMENT_BYTES)" in done.stderr


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, id="SIGINT"),
        pytest.param(signal.SIGTERM, id="SIGTERM", marks=pytest.mark.slow),
    ],
)
def test_interrupted_ingest_reports_what_is_stored(
    vectorforge: CommandLine, number: signal.Signals, tmp_path: Path
) -> None:
    name, folder = f"{number.name}-{uuid4()}", tmp_path
    for file in range(200):
        # a word of more than 100 characters is one token for the model: much text, little to compute
        sentences = (f"Rule {file}.{line} {'x' * 200}." for line in range(60))
        (folder / f"{file}.md").write_text("\n\n".join(sentences))
    ingest = subprocess.Popen(
        [VECTORFORGE, "ingest", folder, "-c", name],
        cwd=vectorforge.folder, env=vectorforge.environment, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    # More than are ingested at a time: the first ones are stored, but maybe not counted yet.
    while not any(c["document_count"] > 8 for c in collections_of(vectorforge) if c["name"] == name):
        assert ingest.poll() is None
        time.sleep(0.2)
    ingest.send_signal(number)
    _, errors = ingest.communicate(timeout=60)
    assert ingest.returncode == 130, errors
    reported = re.search(r"Documents stored: (\d+)\. The same command ingests the rest\.", errors)
    assert reported, errors
    assert 0 < int(reported[1]) <= vectorforge.json("documents", "list", "-c", name)["total"] < 200
    assert "Traceback" not in errors


def test_ingest_that_stores_nothing_leaves_no_collection(vectorforge: CommandLine) -> None:
    (vectorforge.folder / "blank.md").write_text(" ")
    vectorforge("ingest", "blank.md", "-c", "nothing", code=1)
    assert "nothing" not in {c["name"] for c in collections_of(vectorforge)}
    vectorforge("collections", "create", "prepared")
    vectorforge("ingest", "blank.md", "-c", "prepared", code=1)
    vectorforge("collections", "show", "prepared")


def test_ingest_with_ocr_reads_images_of_a_folder(vectorforge: CommandLine) -> None:
    folder = vectorforge.folder / "scans"
    folder.mkdir()
    fact = "The mooring fee is 48 crowns a night."
    (folder / "photo.png").write_bytes(file_of(Sheet(prose([fact])), "PNG"))
    (folder / "notes.md").write_text("The harbour opens in April.")
    without = vectorforge.json("ingest", "scans", "-c", "scans")
    assert (without["succeeded"], len(without["skipped_files"])) == (1, 1)
    assert without["skipped_files"][0]["reason"] == "images are read with --ocr only"

    found = vectorforge.json("ingest", "scans", "-c", "scans", "--ocr")
    assert (found["succeeded"], found["unchanged"], found["failed"]) == (1, 1, 0)
    assert vectorforge.json("collections", "show", "scans")["ocr"] is True
    hits = vectorforge.json("search", "mooring fee", "-c", "scans", "--mode", "lexical")["results"]
    assert hits[0]["text"] == fact
    assert hits[0]["locations"][0]["page"] == 1


def test_ingest_of_mixed_pdf_without_ocr_shows_what_to_do(vectorforge: CommandLine) -> None:
    pages = [Sheet(prose(["The harbour opens in April."]), scanned=False), Sheet(prose(["A scan."]))]
    (vectorforge.folder / "mixed.pdf").write_bytes(pdf_of(pages))
    [warning] = vectorforge.json("ingest", "mixed.pdf", "-c", "mixed")["warnings"]
    assert warning.startswith("./mixed.pdf: 1 pages without a text layer were left out.")
    assert "`vectorforge ingest --ocr`" in vectorforge("ingest", "mixed.pdf", "-c", "mixed").stderr


@pytest.mark.parametrize(
    ("name", "text", "package"),
    [
        ("plain.txt", "The door is green.", "semantic_text_splitter"),
        ("page.html", "<p>The door is green.</p>", "selectolax"),
        ("paper.pdf", "%PDF-1.4", "pypdfium2"),
        ("front.md", "---\ntitle: Doors\n---\nThe door is green.", "yaml"),
    ],
)
def test_ingest_without_its_extra_names_the_extra(
    vectorforge: CommandLine, tmp_path: Path, name: str, text: str, package: str
) -> None:
    vectorforge = replace(vectorforge, folder=tmp_path)
    missing = f"raise ModuleNotFoundError(\"No module named '{package}'\", name='{package}')"
    # found before the installed one, also by child processes
    (tmp_path / f"{package}.py").write_text(missing)
    (tmp_path / name).write_text(text)
    code = 2 if package == "semantic_text_splitter" else 1
    done = vectorforge.process("ingest", name, "-c", "x", code=code, PYTHONPATH=str(tmp_path))
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert f"{package} is not installed: pip install 'vectorforge[ingest]', or " in errors[0]
    assert "unexpected" not in done.stderr.lower()


def test_ingest_without_chunker_stops_at_the_first_document(vectorforge: CommandLine, tmp_path: Path) -> None:
    missing = "raise ModuleNotFoundError(name='semantic_text_splitter')"
    (tmp_path / "semantic_text_splitter.py").write_text(missing)
    (tmp_path / "docs").mkdir()
    for number in range(40):
        (tmp_path / "docs" / f"{number}.md").write_text(f"Door {number} is green.")
    done = vectorforge.process(
        "ingest", str(tmp_path / "docs"), "-c", "none", code=2, PYTHONPATH=str(tmp_path)
    )
    assert done.stderr.splitlines()[-1].startswith("error: Stopped. ")
    assert done.stderr.count("vectorforge[ingest]") == 2


def test_ingest_on_full_disk_stops_with_the_reason_and_resumes(vectorforge: CommandLine) -> None:
    (vectorforge.folder / "full").mkdir()
    for number in range(20):
        (vectorforge.folder / "full" / f"{number}.md").write_text(f"Shelf {number} is full.")
    server = EmbeddedPostgres(vectorforge.data_dir / "postgres")
    server.start()
    vectorforge("migrate")
    with psycopg.connect(server.migrator_url, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full'; END $$"
        )
        connection.execute(
            "CREATE TRIGGER full_disk BEFORE INSERT ON vectorforge.chunks "
            "FOR EACH STATEMENT EXECUTE FUNCTION fill()"
        )
        done = vectorforge("ingest", "full", "-c", "full", code=3)
        connection.execute("DROP FUNCTION fill CASCADE")
    assert done.stderr.splitlines()[-1] == (
        "error: Stopped. The database's disk is full. `vectorforge doctor` checks database and disk."
    )
    assert vectorforge.json("ingest", "full", "-c", "full")["succeeded"] == 20
