"""Collections of a version before languages of documents: found as before, without ingesting again."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import psycopg
from psycopg.conninfo import make_conninfo

from tests.integration.terms.conftest import Store
from tests.integration.terms.test_document_languages import ENGLISH, GERMAN, configurations, found, put
from tests.support.postgres.databases import migrate_before
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.schema.migrate import MIGRATIONS, migrate

FILE = next(MIGRATIONS.glob("*_document_languages.sql"))
CREATE = """
INSERT INTO vectorforge.collections
    (tenant_id, id, name, embedding_provider, embedding_model, dimension, distance_metric, language)
SELECT 'acme', gen_random_uuid(), %(language)s, 'local', 'test', 2, 'cosine', %(language)s RETURNING id
"""
STORE = """
WITH document AS (
    INSERT INTO vectorforge.documents
        (tenant_id, id, collection_id, source, media_type, text, size_chars, content_hash, chunk_count)
    VALUES ('acme', gen_random_uuid(), %(collection)s, 'old.md', 'text/plain', %(text)s, length(%(text)s),
            sha256(''), 1)
    RETURNING id
)
INSERT INTO vectorforge.chunks
    (tenant_id, id, collection_id, document_id, ordinal, text, start_offset, end_offset, token_count,
     content_hash, from_version)
SELECT 'acme', gen_random_uuid(), %(collection)s, id, 0, %(text)s, 0, length(%(text)s), 9, sha256(''), 1
FROM document
"""


async def test_stored_words_are_found_after_the_upgrade(
    make_database: Callable[..., str], tmp_path: Path
) -> None:
    url = make_database(empty=True)
    await migrate_before(url, FILE, tmp_path)
    made: dict[str, UUID] = {}
    with psycopg.connect(url) as connection:
        connection.execute("SELECT vectorforge.enter_tenant('acme')")
        connection.execute("SELECT vectorforge.ensure_embedding_space('cosine', 2, 'full')")
        for language, text in (("english", ENGLISH), ("german", GERMAN)):
            row = connection.execute(CREATE, {"language": language}).fetchone()
            assert row is not None
            made[language] = row[0]
            connection.execute(STORE, {"collection": row[0], "text": text})
    await migrate(url)
    async with Database(make_conninfo(url, user="vectorforge_app"), pool_size=1) as database:
        db = database.for_tenant("acme")
        stores = {language: Store(db, collection) for language, collection in made.items()}
        assert await found(stores["english"], "house") == [ENGLISH]
        assert await found(stores["german"], "haus") == [GERMAN]
        await put(stores["english"], "de", GERMAN)  # the collection has the default language
        await put(stores["german"], "en", ENGLISH)  # a set one applies to every document
        assert await configurations(db) == ["english", "german", "german", "german"]
        assert await found(stores["english"], "house") == [ENGLISH]
        assert await found(stores["english"], "haus") == [GERMAN]
        for language, expected in (("english", ["english", "german"]), ("german", ["german"])):
            collection = await CollectionRepository(db).find_by_id(made[language])
            assert collection is not None
            assert list(collection.languages) == expected
