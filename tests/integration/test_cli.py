"""The vectorforge command as a user runs it: a process of its own, a real database, a real model."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Failure, Reply
from vectorforge.local.postgres import EmbeddedPostgres

VECTORFORGE = Path(sys.executable).with_name("vectorforge")

HANDBOOK = """# Handbook

## Refunds

The finance team approves every refund above 500 euros within two working days.

## Holidays

Everybody has thirty days of paid holidays a year, and the office closes between Christmas and New Year.
"""


@dataclass
class CommandLine:
    """Runs commands in one folder, against one data folder."""

    folder: Path
    data_dir: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("VECTORFORGE_")}
        return {**kept, "VECTORFORGE_DATA_DIR": str(self.data_dir)}

    def __call__(self, *arguments: str, stdin: str = "", code: int = 0) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [VECTORFORGE, *arguments],
            cwd=self.folder, env=self.environment, input=stdin, capture_output=True, text=True, check=False,
            timeout=120,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        assert "\x1b" not in done.stdout + done.stderr, "colours off a terminal"
        return done

    def json(self, *arguments: str, stdin: str = "", code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", stdin=stdin, code=code).stdout)


@pytest.fixture(scope="module")
def vectorforge(private_dir: Callable[[str], Path]) -> Iterator[CommandLine]:
    folder = private_dir("cli")
    (folder / "handbook.md").write_text(HANDBOOK)
    cli = CommandLine(folder, folder / "data")
    yield cli
    EmbeddedPostgres(cli.data_dir / "postgres").stop(force=True)


@pytest.fixture(scope="module")
def handbook(vectorforge: CommandLine) -> CommandLine:
    """With the handbook in a collection of its own."""
    first = vectorforge.json("ingest", "handbook.md", "-c", "handbook", "-m", "team=hr")
    assert (first["succeeded"], first["failed"]) == (1, 0)
    assert first["chunks_added"] > 0
    return vectorforge


# C-009 C17: files of a profile, found by it and by no other
def test_a_profile(vectorforge: CommandLine) -> None:
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


@pytest.fixture(scope="module")
def served(vectorforge: CommandLine) -> Iterator[dict[str, Any]]:
    """``vectorforge up --json`` in the background: what it printed when it and the sample were ready."""
    process = subprocess.Popen(
        [VECTORFORGE, "up", "--port", "0", "--json"],
        cwd=vectorforge.folder, env=vectorforge.environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    watchdog = threading.Timer(120, process.kill)
    watchdog.start()
    assert process.stdout is not None
    announced = process.stdout.readline()
    watchdog.cancel()
    try:
        assert announced, process.communicate()[1]
        yield json.loads(announced) | json.loads(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert errors == ""


def fetch(url: str, body: Any = None, **headers: str) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data, {"content-type": "application/json", **headers})  # noqa: S310 - our own server
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310 - as above
        return json.load(response)


class TestUp:
    def test_answers_with_citations_from_the_sample(self, served: dict[str, Any]) -> None:  # F-007
        assert served["sample"]["succeeded"] >= 1
        assert served["provider"] == "extractive"
        answer = fetch(f"{served['url']}/v1/rag/query", {"query": "What is VectorForge?"})
        assert answer["response"]
        assert answer["extractive"] is True
        assert answer["citations"]
        assert answer["context"][0]["source"]

    def test_refuses_other_host_names(self, served: dict[str, Any]) -> None:
        with pytest.raises(urllib.error.HTTPError) as refused:
            fetch(f"{served['url']}/v1/collections", host="rebound.example")
        assert refused.value.code == 421
        refused.value.close()

    def test_shares_its_database_with_the_other_commands(
        self, served: dict[str, Any], vectorforge: CommandLine
    ) -> None:
        vectorforge("collections", "create", "shared")
        collections = fetch(f"{served['url']}/v1/collections")["collections"]
        assert "shared" in [collection["name"] for collection in collections]
        assert vectorforge.json("collections", "list") == {"collections": collections}
        page = vectorforge.json("collections", "list", "--limit", "1", "--offset", "1")
        assert page == {"collections": collections[1:2]}
        assert "no more than 1000" in vectorforge("collections", "list", "--offset", "1000").stderr

    def test_says_when_the_port_is_taken(self, served: dict[str, Any], vectorforge: CommandLine) -> None:
        port = served["url"].rpartition(":")[2]
        assert f"Port {port}" in vectorforge("up", "--port", port, code=2).stderr


class TestIngestAndAsk:
    def test_ingest_again_costs_nothing(self, handbook: CommandLine) -> None:
        again = handbook.json("ingest", "handbook.md", "-c", "handbook", "-m", "team=hr")
        assert (again["unchanged"], again["chunks_added"]) == (1, 0)

    def test_json(self, handbook: CommandLine) -> None:
        answer = handbook.json("ask", "Who approves a refund?", "-c", "handbook")
        assert "finance team" in answer["answer"]
        cited = answer["citations"][0]["source_number"]
        source = answer["sources"][cited - 1]["document_source"]
        assert source == str((handbook.folder / "handbook.md").resolve())

        found = handbook.json("search", "-", "-c", "handbook", "-k", "1", stdin="days off")
        assert len(found["results"]) == 1
        assert found["results"][0]["metadata"]["team"] == "hr"

    def test_plain_text(self, handbook: CommandLine) -> None:
        shown = handbook("ask", "Who approves a refund?", "-c", "handbook").stdout
        assert "finance team" in shown
        assert "] ./handbook.md" in shown
        lines = handbook("search", "refund", "-c", "handbook").stdout.splitlines()
        assert lines[0].split("\t") == ["rank", "score", "source", "heading", "passage"]
        assert all(line.count("\t") == 4 for line in lines)

    def test_jsonl_holds_a_document_a_line(self, vectorforge: CommandLine) -> None:
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

    def test_documents_are_listed_and_deleted_by_a_filter(self, vectorforge: CommandLine) -> None:
        for name, team in (("a", "hr"), ("b", "hr"), ("c", "it")):
            (vectorforge.folder / f"{name}.md").write_text(f"Text of {name}.")
            vectorforge("ingest", f"{name}.md", "-c", "teams", "-m", f"team={team}")
        of_hr = ("-c", "teams", "--filter", '{"team": "hr"}')
        assert vectorforge.json("documents", "list", *of_hr)["total"] == 2
        found = vectorforge.json("search", "text of c", *of_hr)["results"]
        assert {hit["metadata"]["team"] for hit in found} == {"hr"}
        assert "Text of c" not in vectorforge("ask", "What is the text of c?", *of_hr).stdout
        vectorforge("search", "text of c", "-c", "teams", "--filter", '{"team": "none"}', code=1)
        counted = vectorforge.json("documents", "delete", *of_hr, "--dry-run")
        assert counted == {"matched": 2, "deleted": 0, "remaining": 2}
        assert (
            vectorforge("documents", "delete", *of_hr, "--dry-run").stdout
            == "2 documents would be deleted.\n"
        )
        assert "--yes" in vectorforge("documents", "delete", *of_hr, code=2).stderr
        assert vectorforge("documents", "delete", *of_hr, "--yes").stdout == "Deleted 2 documents.\n"
        assert vectorforge("documents", "delete", *of_hr, "--yes").stdout == "Deleted 0 documents.\n"
        assert [
            d["metadata"]["team"] for d in vectorforge.json("documents", "list", "-c", "teams")["documents"]
        ] == ["it"]

    def test_deletions_that_select_nothing_or_everything_are_refused(self, vectorforge: CommandLine) -> None:
        (vectorforge.folder / "only.md").write_text("The only one.")
        vectorforge("ingest", "only.md", "-c", "single")
        for arguments, said in (
            ([], "SOURCE"),
            (["./only.md", "--filter", "{}"], "SOURCE"),
            (["--filter", "{}"], "must have a condition"),
            (["--filter", '{"team": {"$near": 1}}'], "$near"),
            (["--filter", "team=hr"], "--filter"),
        ):
            refused = vectorforge("documents", "delete", *arguments, "-c", "single", "--yes", code=2)
            assert said in refused.stderr
        assert vectorforge.json("documents", "list", "-c", "single")["total"] == 1

    def test_a_source_does_not_depend_on_the_working_directory(self, vectorforge: CommandLine) -> None:
        a, b = (CommandLine(vectorforge.folder / name, vectorforge.data_dir) for name in "ab")
        for cli in (a, b):
            cli.folder.mkdir()
            (cli.folder / "README.md").write_text(f"This is the text of {cli.folder}.")
            assert cli.json("ingest", "README.md", "-c", "two")["succeeded"] == 1
        for path in ("../a/README.md", "../a", str(a.folder)):
            assert b.json("ingest", path, "-c", "two")["unchanged"] == 1
        sources = {d["source"] for d in b.json("documents", "list", "-c", "two")["documents"]}
        assert sources == {str((cli.folder / "README.md").resolve()) for cli in (a, b)}

    # issue 16, point 15
    def test_folder_reports_what_was_skipped_and_names_documents(self, vectorforge: CommandLine) -> None:
        folder = vectorforge.folder / "mixed"
        (folder / "guide").mkdir(parents=True)
        for name in ("guide/setup.txt", "slides.pptx", "photo.PNG", ".hidden.md"):
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
            "photo.PNG": ".png files cannot be read.",
            "slides.pptx": ".pptx files cannot be read. Export it as PDF.",
            "venv": "folder of installed or compiled code",
        }
        assert (summary["succeeded"], summary["failed"]) == (2, 0)
        listed = vectorforge.json("documents", "list", "-c", "skips")["documents"]
        assert {d["title"] for d in listed} == {"guide/setup.txt", None}
        said = vectorforge("ingest", "mixed", "-c", "skips").stderr
        assert "skipped ./mixed/slides.pptx: .pptx files cannot be read. Export it as PDF." in said
        nothing = vectorforge("ingest", "mixed/venv", "-c", "skips", code=2).stderr
        assert "nothing to read" in nothing

    def test_what_cannot_be_read_says_why(self, vectorforge: CommandLine) -> None:
        (vectorforge.folder / "empty.md").write_text("")
        done = vectorforge("ingest", "empty.md", "handbook.md", "-c", "mixed", code=1)
        assert "error: ./empty.md: The document is empty." in done.stderr
        assert done.stdout.splitlines()[1].split("\t")[:5] == ["mixed", "2", "1", "0", "1"]


class TestStats:
    def test_questions_are_counted(self, vectorforge: CommandLine) -> None:  # D-041
        vectorforge("ingest", "handbook.md", "-c", "counted")
        for _ in range(2):
            vectorforge("ask", "How many days of holidays are there?", "-c", "counted")
        found = vectorforge.json("stats", "-c", "counted")
        assert found["totals"]["outcomes"] == {"answered": 2}
        assert (len(found["series"]), found["series"][-1]["queries"]) == (7, 2)
        assert found["content"]["documents"] == 1
        lines = [line.split("\t") for line in vectorforge("stats", "-c", "counted").stdout.splitlines()]
        assert ["questions", "2"] in lines
        assert ["cost in US dollars", "0.0000"] in lines
        assert [line[1] for line in lines if line[0] == "extractive extractive-v1"] == ["2"]
        assert len(vectorforge.json("stats", "--days", "30")["series"]) == 30

    def test_nothing_was_asked(self, vectorforge: CommandLine) -> None:
        vectorforge("collections", "create", "silent")
        done = vectorforge("stats", "-c", "silent")
        assert "questions\t0" in done.stdout
        assert "No questions in this time." in done.stderr
        assert "days" in vectorforge("stats", "--days", "0", code=2).stderr


class TestModels:
    """With a key, against a server that speaks the vendor's protocol."""

    async def ask(self, cli: CommandLine, server: FakeOpenAI, *arguments: str) -> tuple[int, str, str]:
        environment = {
            **cli.environment,
            "VECTORFORGE_OPENAI_API_KEY": server.api_key,
            "VECTORFORGE_OPENAI_BASE_URL": server.base_url,
            "VECTORFORGE_LLM_MAX_RETRIES": "0",
        }
        process = await asyncio.create_subprocess_exec(
            VECTORFORGE, "ask", "Who approves?", "-c", "handbook", *arguments,
            cwd=cli.folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode is not None
        assert server.api_key not in (out + err).decode()
        return process.returncode, out.decode(), err.decode()

    async def test_the_model_answers(self, handbook: CommandLine) -> None:
        async with FakeOpenAI() as server:
            server.script(Reply(texts=("The finance", " team ", "[Source 1].")))
            code, out, err = await self.ask(handbook, server)
        assert (code, out.splitlines()[0]) == (0, "The finance team [Source 1].")
        assert "[1] ./handbook.md" in out
        assert err.startswith("openai")

    async def test_a_conversation_goes_on(self, handbook: CommandLine) -> None:  # P9
        async with FakeOpenAI() as server:
            server.script(Reply(texts=("The finance team, within 9 days [Source 1].",)))
            code, out, err = await self.ask(handbook, server, "--conversation", "new")
            assert (code, "cited from source 1" in err) == (0, True)
            conversation = re.findall(r"^Conversation (\S+)$", err, re.MULTILINE)[0]
            server.script(Reply(texts=("Who approves refunds?",)), Reply(texts=("They do.",)))
            arguments = ("--conversation", conversation, "--rewrite", "--json")
            code, out, _ = await self.ask(handbook, server, *arguments)
            answer = json.loads(out)
            sent = [message["content"] for message in server.requests[-1].body["messages"][1:]]
            code, _, err = await self.ask(handbook, server, "--conversation", "nonsense")
        assert (answer["conversation_id"], answer["rewritten_query"]) == (
            conversation,
            "Who approves refunds?",
        )
        assert sent == ["Who approves?", "The finance team, within 9 days.", "Who approves?"]
        assert (code, "--conversation" in err) == (2, True)

    async def test_what_is_not_cited_is_no_source(self, handbook: CommandLine) -> None:
        async with FakeOpenAI() as server:
            server.script(Reply(texts=("Nobody knows.",)))
            code, out, _ = await self.ask(handbook, server)
        assert code == 0
        assert "Sources" not in out
        assert "Retrieved passages" in out

    async def test_an_answer_that_breaks_off_is_3_and_shows_what_came(self, handbook: CommandLine) -> None:
        async with FakeOpenAI() as server:
            server.script(Reply(texts=("The finance",), ending="cut"))
            code, out, err = await self.ask(handbook, server)
        assert (code, out) == (3, "The finance\n")
        assert err.splitlines()[-1].startswith("error: ")

    async def test_a_refused_key_is_3(self, handbook: CommandLine) -> None:
        async with FakeOpenAI() as server:
            server.script(Failure(401))
            code, out, err = await self.ask(handbook, server, "--json")
        assert (code, out) == (3, "")
        assert json.loads(err)["error"]["code"] == "llm_authentication"


class TestCollections:
    def test_delete_asks_or_wants_yes(self, vectorforge: CommandLine) -> None:
        vectorforge("collections", "create", "doomed")
        assert "--yes" in vectorforge("collections", "delete", "doomed", code=2).stderr
        assert vectorforge.json("collections", "delete", "doomed", "--yes")["deleted"] is True
        assert "doomed" in vectorforge("collections", "show", "doomed", code=2).stderr

    def test_how_it_is_searched(self, vectorforge: CommandLine) -> None:
        made = vectorforge.json(
            "collections", "create", "haus", "--language", "german", "--dense-weight", "0.3"
        )
        assert (made["language"], made["dense_weight"], made["search_mode"]) == ("german", 0.3, "hybrid")
        done = vectorforge("collections", "set", "haus", "--search-mode", "lexical", "--language", "simple")
        assert done.stdout == "haus: lexical search, language simple.\n"
        shown = vectorforge.json("collections", "show", "haus")
        assert (shown["language"], shown["dense_weight"], shown["search_mode"]) == ("simple", 0.3, "lexical")
        assert "english, esto" in vectorforge("collections", "set", "haus", "--language", "x", code=2).stderr
        assert "--dense-weight" in vectorforge("collections", "set", "haus", code=2).stderr
        vectorforge("collections", "set", "haus", "--dense-weight", "1.1", code=2)

    def test_nothing_found_is_1(self, vectorforge: CommandLine) -> None:
        vectorforge("collections", "create", "void")
        assert vectorforge.json("search", "anything", "-c", "void", code=1)["results"] == []
        assert vectorforge.json("ask", "anything", "-c", "void", code=1)["outcome"] == "empty"

    def test_unknown_provider_is_2(self, handbook: CommandLine) -> None:
        done = handbook("ask", "Who?", "-c", "handbook", "--provider", "nobody", code=2)
        assert "nobody" in done.stderr


class TestMigrateAndDoctor:
    def test_check_before_and_after(self, vectorforge: CommandLine) -> None:
        fresh = str(vectorforge.folder / "fresh")
        pending = vectorforge.json("migrate", "--check", "--data-dir", fresh, code=1)["pending"]
        assert pending[0].startswith("0001_")
        assert vectorforge.json("migrate", "--data-dir", fresh) == {"applied": pending}
        assert vectorforge.json("migrate", "--check", "--data-dir", fresh) == {"pending": []}

    def test_doctor_is_content(self, vectorforge: CommandLine) -> None:
        vectorforge("migrate")
        report = vectorforge.json("doctor")
        assert report["ok"] is True
        details = {check["name"]: check["detail"] for check in report["checks"]}
        assert "pgvector" in details["database"]
        assert details["migrations"] == "up to date"

    def test_indexes_are_built_and_listed(self, vectorforge: CommandLine) -> None:
        made = vectorforge.json("collections", "create", "small vectors", "--vector-index", "half")
        assert made["vector_index"] == "half"
        assert vectorforge.json("index", "build") == {"built": []}  # no collection is large enough
        space = f"cosine_{made['dimension']}_half"
        [built] = vectorforge.json("index", "build", space, "--workers", "0", "--memory-mb", "64")["built"]
        assert (built["space"], built["state"]) == (space, "ready")
        spaces = {row["space"]: row["state"] for row in vectorforge.json("index", "list")["spaces"]}
        assert spaces[space] == "ready"
        assert spaces["cosine_1536"] == "none"

    def test_doctor_names_what_is_wrong_and_no_secret(self, vectorforge: CommandLine) -> None:
        environment = {
            **vectorforge.environment,
            "VECTORFORGE_DATABASE_URL": "postgresql://vectorforge_app:s3cret@127.0.0.1:1/db",
            "VECTORFORGE_OPENAI_API_KEY": "sk-s3cret",
        }
        done = subprocess.run(
            [VECTORFORGE, "doctor"], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert "fail database" in done.stdout
        assert "credentials for openai" in done.stdout
        assert "s3cret" not in done.stdout + done.stderr

    def test_doctor_makes_no_database(self, vectorforge: CommandLine) -> None:
        nowhere = vectorforge.folder / "nowhere"
        report = vectorforge.json("doctor", "--data-dir", str(nowhere))
        assert report["ok"] is True
        details = {check["name"]: check["detail"] for check in report["checks"]}
        assert "made by `vectorforge up`" in details["database"]
        assert not nowhere.exists()

    def test_doctor_knows_every_provider_and_every_variable(self, vectorforge: CommandLine) -> None:
        environment = {
            **vectorforge.environment,
            "VECTORFORGE_GOOGLE_API_KEY": "s3cret",
            "VECTORFORGE_COHERE_API_KEY": "s3cret",
            "VECTORFORGE_OLLAMA_BASE_URL": "http://127.0.0.1:1",
            "VECTORFORGE_MAX_SERVE_BASE_URL": "http://127.0.0.1:1",
            "VECTORFORGE_OPENAI_APIKEY": "s3cret",
        }
        done = subprocess.run(
            [VECTORFORGE, "doctor", "--json", "--data-dir", str(vectorforge.folder / "nowhere")],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        checks = json.loads(done.stdout)["checks"]
        models = next(check for check in checks if check["name"] == "models")
        assert all(name in models["detail"] for name in ("google", "cohere", "ollama", "max_serve"))
        assert [c for c in checks if c["name"] == "settings" and c["status"] == "warn"] == [
            {
                "name": "settings",
                "status": "warn",
                "detail": "VECTORFORGE_OPENAI_APIKEY is no setting and is ignored",
                "remedy": "Did you mean VECTORFORGE_OPENAI_API_KEY?",
            }
        ]
        assert "s3cret" not in done.stdout + done.stderr

    def test_a_database_that_is_not_there_is_3(self, vectorforge: CommandLine) -> None:
        environment = {
            **vectorforge.environment,
            "VECTORFORGE_DATABASE_URL": "postgresql://app@127.0.0.1:1/db",
        }
        done = subprocess.run(
            [VECTORFORGE, "collections", "list"], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 3
        assert done.stderr.count("\n") == 1


def test_keys_are_made_rotated_and_ended(vectorforge: CommandLine) -> None:  # issue 8, point 1
    made = vectorforge("keys", "create", "web page", "--tenant", "acme", "--days", "30")
    assert re.fullmatch(r"vf_[0-9a-f]{16}_[A-Za-z0-9_-]{43}\n", made.stdout)  # alone, to be piped
    assert made.stdout.strip() not in made.stderr
    (listed,) = vectorforge.json("keys", "list", "--tenant", "acme")["keys"]
    assert (listed["name"], listed["scope"], listed["last_used_on"]) == ("web page", "read", None)
    rotated = vectorforge.json("keys", "rotate", listed["id"], "-t", "acme", "--overlap-hours", "1")
    assert rotated["key"].startswith(f"vf_{rotated['id']}_")
    assert vectorforge.json("keys", "revoke", rotated["id"], "-t", "acme", "-y")["revoked_at"]
    refused = vectorforge("keys", "revoke", rotated["id"], "-t", "acme", "--yes", code=2)
    assert "no key of this id in use" in refused.stderr
    assert "revoked" in vectorforge("keys", "list", "--tenant", "acme").stdout
    assert vectorforge.json("keys", "list", "-t", "acme", "--limit", "1", "--offset", "1")["keys"] == [
        key for key in vectorforge.json("keys", "list", "-t", "acme")["keys"] if key["id"] == listed["id"]
    ]
    assert vectorforge.json("keys", "list") == {"keys": []}  # of the local tenant
