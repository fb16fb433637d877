"""A next version of the schema: the baseline with the kinds of migrations that a release adds."""

import shutil
from pathlib import Path
from typing import Final

from vectorforge.db.schema.migrate import MIGRATIONS, read_migrations

_EXPAND: Final = """\
-- Columns with defaults, a table of tenants, and a function in a new form with the same signature.
SET LOCAL ROLE vectorforge_migrator;

ALTER TABLE vectorforge.documents ADD COLUMN summary text;
ALTER TABLE vectorforge.query_logs ADD COLUMN reviewed boolean NOT NULL DEFAULT false;

CREATE TABLE vectorforge.document_reviews (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    document_id uuid NOT NULL,
    collection_id uuid NOT NULL,
    verdict text NOT NULL,
    PRIMARY KEY (tenant_id, document_id),
    FOREIGN KEY (tenant_id, collection_id, document_id)
        REFERENCES vectorforge.documents (tenant_id, collection_id, id) ON DELETE CASCADE
);
SELECT vectorforge.enable_tenant_isolation('document_reviews');
GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.document_reviews TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.document_reviews TO vectorforge_eraser;

CREATE OR REPLACE FUNCTION vectorforge.delete_expired_streams() RETURNS bigint
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    WITH expired AS (
        DELETE FROM vectorforge.answer_streams WHERE (tenant_id, query_id) IN (
            SELECT old.tenant_id, old.query_id FROM vectorforge.answer_streams AS old
            WHERE old.expires_at < clock_timestamp() LIMIT 500
        ) RETURNING true
    )
    SELECT count(*) FROM expired
$$;
"""
_INDEX: Final = """\
-- no-transaction
-- Repeatable: an interrupted build leaves an invalid index.
DROP INDEX CONCURRENTLY IF EXISTS vectorforge.documents_by_title;
CREATE INDEX CONCURRENTLY documents_by_title ON vectorforge.documents (tenant_id, collection_id, title);
"""


def write_next_version(directory: Path) -> list[Path]:
    """Copy the migrations into a new directory and add those of the next version.

    Returns:
        The added files, in order.
    """
    shutil.copytree(MIGRATIONS, directory)
    last = read_migrations()[-1].version
    added = [directory / f"{last + 1:04}_reviews.sql", directory / f"{last + 2:04}_titles_index.sql"]
    for path, sql in zip(added, (_EXPAND, _INDEX), strict=True):
        path.write_text(sql)
    return added
