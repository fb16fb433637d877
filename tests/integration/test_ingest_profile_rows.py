"""Profiles from the tables of a real PostgreSQL."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr

from tests.support.http.live_api import build_application
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.cli.ingest.profiles import ProfileQueries, ingest_profile_rows
from vectorforge.cli.ingest.run import IngestSummary
from vectorforge.cli.session import Session
from vectorforge.cli.terminal import Terminal
from vectorforge.config import DatabaseSettings, VectorForgeConfig
from vectorforge.errors import InvalidInputError
from vectorforge.profile_types import SourceType

TABLES = """
CREATE TABLE people (id bigint PRIMARY KEY, bio text);
CREATE TABLE jobs (id int PRIMARY KEY, person_id bigint, title text, company text, started date);
CREATE TABLE knows (person_id bigint, skill text, level text);
INSERT INTO people SELECT n, 'Person ' || n || ' bakes' FROM generate_series(1, 120) AS n;
INSERT INTO people VALUES (900, NULL);
INSERT INTO jobs SELECT n, 1 + n % 120, 'Job ' || n, 'Acme', '2020-01-01' FROM generate_series(1, 240) AS n;
INSERT INTO knows VALUES (1, 'Python', 'expert'), (1, 'Baking', NULL), (2, 'SQL', NULL);
"""
QUERIES = ProfileQueries(
    "SELECT id AS profile_id, bio AS summary FROM people",
    {
        "experiences": "SELECT id, person_id AS profile_id, title, company, started AS start_date FROM jobs",
        "skills": "SELECT person_id AS profile_id, skill, level FROM knows",
    },
)


@dataclass
class Staff:
    """A source database, and the session whose tenant has the profiles."""

    dsn: str
    session: Session

    def sql(self, statement: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement.encode())

    async def ingest(self, queries: ProfileQueries = QUERIES) -> IngestSummary:
        return await ingest_profile_rows(Terminal(json_output=True), self.session, self.dsn, queries)

    async def texts(self, profile_id: int) -> dict[tuple[SourceType, str], str]:
        retrieval = await self.session.services.profiles.retrieval()
        found = await retrieval.retrieve("anything", profile_id, 100)
        return {(chunk.source_type, chunk.source_id): chunk.text for chunk in found}


@pytest.fixture
async def staff(
    make_database: Callable[..., str], fresh_database_url: str, make_tenant: Callable[[], str]
) -> AsyncIterator[Staff]:
    config = VectorForgeConfig(database=DatabaseSettings(database_url=SecretStr(fresh_database_url)))
    application = build_application(config)
    async with application:
        staff = Staff(make_database(empty=True), Session(application, application.for_tenant(make_tenant())))
        staff.sql(TABLES)
        yield staff


# C-001 C-008 C-025: from PostgreSQL's tables to chunks of each profile
async def test_table_rows_become_profiles(staff: Staff) -> None:
    summary = await staff.ingest()
    assert summary.row()[1:5] == (121, 120, 1, 0)  # 900 has no text, before and after
    assert await staff.texts(1) == {
        (SourceType.SUMMARY, "1"): "Person 1 bakes",
        (SourceType.EXPERIENCE, "120"): "# Job 120, Acme\n\nSince 2020-01-01",
        (SourceType.EXPERIENCE, "240"): "# Job 240, Acme\n\nSince 2020-01-01",
        (SourceType.SKILL, "all"): "# Skills\n\nPython (expert), Baking",
    }
    assert len(await staff.texts(2)) == 4
    assert await staff.texts(900) == {}


# C-010 C-025: changed rows are replaced, unchanged ones not embedded, documents stay
async def test_reingest_after_changes_updates_changed_rows_only(staff: Staff) -> None:
    await staff.ingest()
    ingestion = await staff.session.services.profiles.ingestion()
    await ingestion.ingest_document(1, "The CV.", SourceType.CV)
    embedder = staff.session.application.embedding_registry.get("hashing")
    assert isinstance(embedder, HashingEmbedder)
    embedder.texts.clear()
    assert (await staff.ingest()).row()[1:5] == (121, 0, 121, 0)
    assert embedder.texts == []

    staff.sql("UPDATE people SET bio = 'Person 1 writes' WHERE id = 1; DELETE FROM jobs WHERE id = 120")
    assert (await staff.ingest()).row()[1:5] == (121, 1, 120, 0)
    assert embedder.texts == ["Person 1 writes"]
    assert set(await staff.texts(1)) == {
        (SourceType.SUMMARY, "1"),
        (SourceType.EXPERIENCE, "240"),
        (SourceType.SKILL, "all"),
        (SourceType.CV, "1"),
    }


@pytest.mark.parametrize(
    ("queries", "words"),
    [
        (
            ProfileQueries("SELECT id, bio AS summary FROM people", {}),
            "'summary' needs one column 'profile_id'",
        ),
        (ProfileQueries(QUERIES.summary, {"skills": "SELECT skill FROM knows"}), "'skills' needs one column"),
        (ProfileQueries("SELECT person_id AS profile_id, title AS summary FROM jobs", {}), "twice"),
        (ProfileQueries("SELECT bio AS profile_id, bio AS summary FROM people", {}), "must be an integer"),
        (ProfileQueries("SELECT -1 AS profile_id, '' AS summary", {}), "must be an integer"),
        (ProfileQueries("SELECT nothing FROM people", {}), "UndefinedColumn"),
    ],
)
async def test_invalid_profile_query_is_rejected(staff: Staff, queries: ProfileQueries, words: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        await staff.ingest(queries)
    assert words in refused.value.message


def test_profile_query_file_is_read_or_rejected(tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text('summary = "SELECT 1"\nskills = """\nSELECT 2\n"""')
    assert ProfileQueries.read(file) == ProfileQueries("SELECT 1", {"skills": "SELECT 2\n"})
    for text in ('skills = "SELECT 2"', "summary = 1", 'summary = "x"\nhobbies = "y"', "summary = "):
        file.write_text(text)
        with pytest.raises(InvalidInputError):
            ProfileQueries.read(file)
    with pytest.raises(InvalidInputError):
        ProfileQueries.read(tmp_path / "missing.toml")
