"""The version before the newest migration serves on a database that today's version has migrated.

While a deployment replaces the functions, or is rolled back, old code meets the new schema. So this is
really old code: what git holds of the time before the newest migration was added.
"""

import asyncio
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.aws.live_query_function import PASSAGE
from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer
from vectorforge.db.schema.migrate import MIGRATIONS, migrate, read_migrations
from vectorforge.db.term_reading import read_unread_terms

ROOT = Path(__file__).parents[2]
ADDED = ("log", "--first-parent", "-m", "--diff-filter=A", "-1", "--format=%H", "--")
"""Asks for the commit that brought a file; a merge, if a branch did."""
PACKED, GROUPED = 17, 23
"""Migrations since which words stand where the code of before does not look; docs/migrations.md says so."""
WRITE_LOGS = """
import json, sys
from functions.log_writer.handler import handler
class Context:
    function_name, memory_limit_in_mb, aws_request_id = "log-writer", 128, "1"
    invoked_function_arn = "arn:aws:lambda:eu-central-1:123456789012:function:log-writer"
    def get_remaining_time_in_millis(self): return 30_000
answer = handler(json.load(sys.stdin), Context())
handler.shutdown()
print(json.dumps(answer))
"""


def git(*words: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"git {words[0]}: {done.stderr.decode().strip() or 'failed'}; the old code is not here")
    return done.stdout


def has_earlier_migrations(commit: str) -> bool:
    folder = MIGRATIONS.relative_to(ROOT).as_posix()
    names = [Path(line).name for line in git("ls-tree", "--name-only", commit, f"{folder}/").decode().split()]
    found = [name for name in names if name.endswith(".sql")]
    return found == [migration.name for migration in read_migrations()[: len(found)]]


@pytest.fixture(scope="module")
def old_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """shared/ and functions/ as of the last commit without the newest migration."""
    if git("rev-parse", "--is-shallow-repository").strip() != b"false":
        pytest.skip("this clone is shallow; git fetch --unshallow brings the old code")
    newest = MIGRATIONS / read_migrations()[-1].name
    if git("status", "--porcelain", "--", str(newest)):
        commit = "HEAD"  # it is being written, and in no commit yet
    else:
        [added] = git(*ADDED, str(newest)).decode().split()
        commit = f"{added}^"
        while not has_earlier_migrations(commit):  # a merge that the newest was numbered anew after
            commit += "^"
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(fileobj=BytesIO(git("archive", commit, "shared", "functions"))) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
async def embeddings() -> AsyncIterator[FakeEmbeddingsServer]:
    async with FakeEmbeddingsServer(dimension=64, api_key="sk-embedder") as server:
        yield server


@pytest.fixture
def environment(
    old_code: Path, make_database: Callable[..., str], embeddings: FakeEmbeddingsServer, tmp_path: Path
) -> dict[str, str]:
    """Of a process of the old version, with a database that today's has migrated."""
    return environment_for(make_database(), old_code, embeddings, tmp_path)


def environment_for(
    migrator: str, old_code: Path, embeddings: FakeEmbeddingsServer, home: Path
) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYTHONPATH": f"{old_code / 'shared'}:{old_code}",
        "VECTORFORGE_DATABASE_URL": make_conninfo(migrator, user="vectorforge_app"),
        "VECTORFORGE_LOG_WRITER_DATABASE_URL": make_conninfo(migrator, user="vectorforge_log_writer"),
        "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "http",
        "VECTORFORGE_EMBEDDING_BASE_URL": embeddings.base_url,
        "VECTORFORGE_EMBEDDING_MODEL": "fake-embeddings",
        "VECTORFORGE_EMBEDDING_DIMENSION": "64",
        "VECTORFORGE_EMBEDDING_API_KEY": "sk-embedder",
    }


async def run(
    environment: dict[str, str], *words: str, given: str = "", codes: tuple[int, ...] = (0,)
) -> Any:
    """What a Python of the old version prints as its last line, as JSON; it ends with one of the codes."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        env=environment,
        cwd=environment["HOME"],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(given.encode())
    assert process.returncode in codes, err.decode()
    return json.loads(out.decode().strip().splitlines()[-1] if words[0] == "-c" else out)


def rows(environment: dict[str, str], query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(environment["VECTORFORGE_DATABASE_URL"], user="postgres") as connection:
        return connection.execute(query.encode()).fetchall()


async def test_it_is_old_code(environment: dict[str, str], old_code: Path) -> None:
    code = (
        "import json, vectorforge; from vectorforge.db.schema.migrate import read_migrations;"
        "print(json.dumps([vectorforge.__file__, read_migrations()[-1].version]))"
    )
    file, version = await run(environment, "-c", code)
    assert Path(file).is_relative_to(old_code)
    assert version < read_migrations()[-1].version


async def test_documents_are_taken_in_and_asked_and_the_question_is_logged(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "refunds.md").write_text(PASSAGE)
    cli = ("-m", "vectorforge.cli")
    for _ in range(2):  # and again, as what has been read before
        taken_in = await run(environment, *cli, "ingest", "refunds.md", "--json")
        assert taken_in["failed"] == 0
    answer = await run(environment, *cli, "ask", "How long does a refund take?", "--json")
    assert "five days" in answer["answer"]
    assert rows(environment, "SELECT count(*) FROM vectorforge.chunks")[0][0] > 0
    logged = rows(environment, "SELECT tenant_id, query_text, outcome FROM vectorforge.query_logs")
    assert logged == [("local", "How long does a refund take?", "answered")]


async def version_of(environment: dict[str, str]) -> int:
    code = "from vectorforge.db.schema.migrate import read_migrations; print(read_migrations()[-1].version)"
    return int(await run(environment, "-c", code))


def write_kettles(home: Path) -> None:
    """A document of several passages: all have the word "boil", the first alone has "kettle"."""
    paragraphs = [f"Water will boil at {number} degrees on a mountain. " * 40 for number in range(90, 93)]
    (home / "boiling.md").write_text("\n\n".join(["The kettle. " + paragraphs[0], *paragraphs[1:]]))


async def is_found(environment: dict[str, str], word: str, mode: str) -> bool:
    cli = ("-m", "vectorforge.cli", "search", word, "--mode", mode, "--json")
    return bool((await run(environment, *cli, codes=(0, 1)))["results"])  # 1: nothing was found


async def test_by_words_it_finds_what_stands_where_it_looks(
    environment: dict[str, str], tmp_path: Path
) -> None:  # docs/migrations.md, "What the version before does not see"
    """What is stored while it serves, or after a rollback."""
    version = await version_of(environment)
    write_kettles(tmp_path)
    assert (await run(environment, "-m", "vectorforge.cli", "ingest", "boiling.md", "--json"))["failed"] == 0
    assert rows(environment, "SELECT count(*) > 1 FROM vectorforge.chunks") == [(True,)]
    assert await is_found(environment, "boil", "lexical") == (version >= GROUPED)
    assert await is_found(environment, "kettle", "lexical") == (version >= PACKED)
    for mode in ("dense", "hybrid"):  # by its vector
        assert await is_found(environment, "boil", mode)


async def test_by_words_it_finds_what_was_there_before_until_its_words_are_read_anew(
    old_code: Path, make_database: Callable[..., str], embeddings: FakeEmbeddingsServer, tmp_path: Path
) -> None:  # docs/migrations.md, "What the version before does not see"
    migrator = make_database(empty=True)
    environment = environment_for(migrator, old_code, embeddings, tmp_path)
    cli = ("-m", "vectorforge.cli")
    environment["VECTORFORGE_MIGRATOR_DATABASE_URL"] = migrator
    await run(environment, *cli, "migrate", "--json")
    version = await version_of(environment)
    write_kettles(tmp_path)
    assert (await run(environment, *cli, "ingest", "boiling.md", "--json"))["failed"] == 0
    assert await is_found(environment, "boil", "lexical")
    await migrate(migrator)
    assert await is_found(environment, "boil", "lexical")
    await read_unread_terms(migrator)
    assert await is_found(environment, "boil", "lexical") == (version >= PACKED)
    assert await is_found(environment, "boil", "hybrid")


async def test_query_logs_are_written(environment: dict[str, str]) -> None:
    event = (ROOT / "events" / "log_writer_sqs_batch.json").read_text()
    assert await run(environment, "-c", WRITE_LOGS, given=event) == {"batchItemFailures": []}
    assert rows(environment, "SELECT count(*) FROM vectorforge.query_logs") == [(2,)]
