"""Counts of migrations 0034 and 0035: exact for what an earlier version has stored, and for later writes."""

from collections.abc import Callable
from pathlib import Path

import psycopg

from tests.integration.terms.test_language_upgrade import CREATE, STORE
from tests.support.postgres.databases import migrate_before
from vectorforge.db.schema.migrate import MIGRATIONS, migrate

FILE = next(MIGRATIONS.glob("*_stored_counts.sql"))
_BYTES = "SELECT text_bytes FROM vectorforge.collections"
_CONVERSATION = """
INSERT INTO vectorforge.conversations (tenant_id, id, title, credential)
VALUES ('acme', gen_random_uuid(), 'One', 'key:a')
"""
_COUNTS = "SELECT credential, conversations FROM vectorforge.conversation_counts ORDER BY 1"


async def test_stored_documents_and_conversations_are_counted_by_the_upgrade(
    make_database: Callable[..., str], tmp_path: Path
) -> None:
    url = make_database(empty=True)
    await migrate_before(url, FILE, tmp_path)
    with psycopg.connect(url) as connection:
        connection.execute("SELECT vectorforge.enter_tenant('acme')")
        connection.execute("SELECT vectorforge.ensure_embedding_space('cosine', 2, 'full')")
        made = connection.execute(CREATE, {"language": "english"}).fetchone()
        assert made is not None
        connection.execute(STORE, {"collection": made[0], "text": "Straße"})
        connection.execute(_CONVERSATION)
    await migrate(url)
    with psycopg.connect(url) as connection:
        connection.execute("SELECT vectorforge.enter_tenant('acme')")
        assert connection.execute(_BYTES).fetchone() == (7,)
        assert connection.execute(_COUNTS).fetchall() == [("", 1), ("key:a", 1)]
        connection.execute(STORE.replace("old.md", "new.md"), {"collection": made[0], "text": "twelve bytes"})
        connection.execute(_CONVERSATION)
    with psycopg.connect(url) as connection:
        connection.execute("SELECT vectorforge.enter_tenant('acme')")
        assert connection.execute(_BYTES).fetchone() == (19,)
        assert connection.execute(_COUNTS).fetchall() == [("", 2), ("key:a", 2)]
        connection.execute("DELETE FROM vectorforge.documents WHERE source = 'old.md'")
        connection.execute("DELETE FROM vectorforge.conversations")
    with psycopg.connect(url) as connection:
        connection.execute("SELECT vectorforge.enter_tenant('acme')")
        assert connection.execute(_BYTES).fetchone() == (12,)
        assert connection.execute(_COUNTS).fetchall() == []
