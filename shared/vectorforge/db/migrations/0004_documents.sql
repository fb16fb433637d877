-- Documents and their chunks.
SET LOCAL ROLE vectorforge_migrator;

-- A source may be longer than an entry of a btree, so its hash is what is unique. convert_to() is only "stable" because
-- conversions can be redefined; to UTF8 it always returns the same bytes.
CREATE FUNCTION vectorforge.source_key(source text) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
RETURN sha256(convert_to(source, 'UTF8'));
GRANT EXECUTE ON FUNCTION vectorforge.source_key(text) TO vectorforge_app, vectorforge_eraser;

-- Documents with their full text, of which chunks are slices. A write replaces a document as a whole (version).
CREATE TABLE vectorforge.documents (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    id uuid NOT NULL,
    collection_id uuid NOT NULL,
    source text NOT NULL CHECK (char_length(source) BETWEEN 1 AND 2000),
    source_key bytea NOT NULL GENERATED ALWAYS AS (vectorforge.source_key(source)) STORED,
    -- the file that contains this record: records missing from its next version are deleted
    parent_source text CHECK (char_length(parent_source) BETWEEN 1 AND 2000),
    title text,
    media_type text NOT NULL,
    metadata jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(metadata) = 'object'),
    text text NOT NULL,
    size_chars int NOT NULL,
    content_hash bytea NOT NULL CHECK (octet_length(content_hash) = 32),
    version int NOT NULL DEFAULT 1 CHECK (version >= 1),
    chunk_count int NOT NULL DEFAULT 0 CHECK (chunk_count >= 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, collection_id, id),
    UNIQUE (tenant_id, collection_id, source_key),
    FOREIGN KEY (tenant_id, collection_id) REFERENCES vectorforge.collections (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX documents_by_time ON vectorforge.documents (tenant_id, collection_id, updated_at, id);
CREATE INDEX documents_by_parent
    ON vectorforge.documents (tenant_id, collection_id, vectorforge.source_key(parent_source))
    WHERE parent_source IS NOT NULL;

-- The default compression, pglz, takes as long as storing the chunks; lz4 takes a tenth of that. A server built without
-- lz4 stores the text uncompressed, which also lets parts of it be read alone.
DO $$
BEGIN
    IF (SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression') THEN
        ALTER TABLE vectorforge.documents ALTER COLUMN text SET COMPRESSION lz4;
    ELSE
        ALTER TABLE vectorforge.documents ALTER COLUMN text SET STORAGE EXTERNAL;
    END IF;
END
$$;

-- What the statements of a transaction have changed, until its commit settles it: rows of other transactions are never
-- visible here. So writers of one collection, or of documents that share postings, wait for each other only at the
-- commit, and in one order: postings by key, then collections. A row for each statement instead of one update of the
-- collection for each document: 200 documents of one statement took 0.3 ms of the server each for that.
CREATE TABLE vectorforge.pending_changes (
    transaction xid8 NOT NULL DEFAULT pg_current_xact_id(),
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    -- the one row of a transaction that has it settled
    leads boolean NOT NULL DEFAULT false,
    -- changes of a collection's counts
    collection_id uuid,
    data_version bigint NOT NULL DEFAULT 0,
    document_count bigint NOT NULL DEFAULT 0,
    chunk_count bigint NOT NULL DEFAULT 0,
    term_count bigint NOT NULL DEFAULT 0,
    -- a chunk whose terms were deleted, as in chunk_terms
    scope int,
    number bigint,
    batch bigint,
    terms int[],
    -- a document with a new title, and the version from which on chunks have it
    retitled uuid,
    titled_version int
);
CREATE INDEX pending_changes_by_transaction ON vectorforge.pending_changes (transaction);
CREATE UNIQUE INDEX pending_changes_leading ON vectorforge.pending_changes (transaction) WHERE leads;
SELECT vectorforge.enable_tenant_isolation('pending_changes');
-- Only triggers write, as the owner.
CREATE POLICY keeper ON vectorforge.pending_changes TO vectorforge_migrator USING (true);

-- Apply the pending changes of this transaction. retitle_terms() and delete_postings() are in 0006.
CREATE FUNCTION vectorforge.settle_changes() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM vectorforge.retitle_terms();
    PERFORM vectorforge.delete_postings();
    UPDATE vectorforge.collections AS c
    SET data_version = c.data_version + change.data_version,
        document_count = c.document_count + change.document_count,
        chunk_count = c.chunk_count + change.chunk_count,
        term_count = c.term_count + change.term_count
    FROM (
        SELECT p.tenant_id, p.collection_id, sum(p.data_version) AS data_version,
               sum(p.document_count) AS document_count, sum(p.chunk_count) AS chunk_count,
               sum(p.term_count) AS term_count
        FROM vectorforge.pending_changes AS p WHERE p.transaction = pg_current_xact_id()
        GROUP BY 1, 2 ORDER BY 1, 2
    ) AS change
    WHERE c.tenant_id = change.tenant_id AND c.id = change.collection_id;
    DELETE FROM vectorforge.pending_changes WHERE transaction = pg_current_xact_id();
END
$$;

CREATE FUNCTION vectorforge.settle_at_commit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM vectorforge.settle_changes();
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER settle AFTER INSERT ON vectorforge.pending_changes
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.leads)
    EXECUTE FUNCTION vectorforge.settle_at_commit();

-- Have the pending changes settled at the commit.
CREATE FUNCTION vectorforge.settle_later(tenant text) RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    INSERT INTO vectorforge.pending_changes (tenant_id, leads) VALUES (tenant, true)
    ON CONFLICT (transaction) WHERE leads DO NOTHING;
END;

-- Maintain a collection's counts and data_version for every writer. As the owner, because the eraser may not update.
CREATE FUNCTION vectorforge.count_documents() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO vectorforge.pending_changes (tenant_id, collection_id, data_version, document_count, chunk_count)
        SELECT tenant_id, collection_id, count(*), count(*), sum(chunk_count) FROM added GROUP BY 1, 2;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO vectorforge.pending_changes (tenant_id, collection_id, data_version, document_count, chunk_count)
        SELECT tenant_id, collection_id, count(*), -count(*), -sum(chunk_count) FROM removed GROUP BY 1, 2;
    ELSE
        INSERT INTO vectorforge.pending_changes (tenant_id, collection_id, data_version, document_count, chunk_count)
        SELECT tenant_id, collection_id, count(*) FILTER (WHERE sign = 1), sum(sign), sum(sign * chunk_count) FROM (
            SELECT tenant_id, collection_id, chunk_count, 1 AS sign FROM added
            UNION ALL
            SELECT tenant_id, collection_id, chunk_count, -1 FROM removed
        ) AS changed
        GROUP BY 1, 2;
        INSERT INTO vectorforge.pending_changes (tenant_id, retitled, titled_version)
        SELECT added.tenant_id, added.id, CASE WHEN added.version <> removed.version THEN added.version END
        FROM added JOIN removed ON removed.tenant_id = added.tenant_id AND removed.id = added.id
        WHERE added.title IS DISTINCT FROM removed.title;
    END IF;
    PERFORM vectorforge.settle_later(p.tenant_id) FROM vectorforge.pending_changes AS p
    WHERE p.transaction = pg_current_xact_id() LIMIT 1;
    RETURN NULL;
END
$$;
CREATE TRIGGER count_added AFTER INSERT ON vectorforge.documents
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION vectorforge.count_documents();
CREATE TRIGGER count_changed AFTER UPDATE ON vectorforge.documents
    REFERENCING OLD TABLE AS removed NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION vectorforge.count_documents();
CREATE TRIGGER count_removed AFTER DELETE ON vectorforge.documents
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION vectorforge.count_documents();

-- The searchable parts of documents. A chunk is current from the version that added it (from_version) until the one
-- that retired it (to_version).
CREATE TABLE vectorforge.chunks (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    id uuid NOT NULL,
    collection_id uuid NOT NULL,
    document_id uuid NOT NULL,
    ordinal int NOT NULL CHECK (ordinal >= 0),
    text text NOT NULL,
    start_offset int NOT NULL,
    end_offset int NOT NULL,
    token_count int NOT NULL,
    heading text,
    content_hash bytea NOT NULL CHECK (octet_length(content_hash) = 32),
    metadata jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(metadata) = 'object'),
    from_version int NOT NULL,
    to_version int CHECK (to_version > from_version),
    PRIMARY KEY (tenant_id, id),
    CHECK (0 <= start_offset AND start_offset <= end_offset),
    FOREIGN KEY (tenant_id, collection_id, document_id)
        REFERENCES vectorforge.documents (tenant_id, collection_id, id) ON DELETE CASCADE,
    -- One current chunk at each position. Deferred, because a new version moves the chunks that it shares with the
    -- old one.
    CONSTRAINT chunks_one_current_per_ordinal
        EXCLUDE USING btree (tenant_id WITH =, document_id WITH =, ordinal WITH =) WHERE (to_version IS NULL)
        DEFERRABLE INITIALLY DEFERRED
);
CREATE INDEX chunks_by_document ON vectorforge.chunks (tenant_id, collection_id, document_id);
-- For filter_candidates(). The collection's id is part of each path, so that other collections' chunks are not read.
-- Writers append to a pending list that searches read as well; it is merged at 256 kB.
CREATE INDEX chunks_by_metadata ON vectorforge.chunks
    USING gin (jsonb_set('{}', ARRAY[collection_id::text], metadata) jsonb_path_ops)
    WITH (gin_pending_list_limit = 256);

SELECT vectorforge.enable_tenant_isolation('documents'), vectorforge.enable_tenant_isolation('chunks');
GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.documents, vectorforge.chunks TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.documents, vectorforge.chunks TO vectorforge_eraser;

-- Chunks that a metadata filter matches according to the index on metadata. Row-level security keeps an ordinary role
-- from using such an index: its operators are not "leakproof", so the policy would be tested first, on every row
-- (https://www.postgresql.org/docs/current/rules-privileges.html). So it runs as a role to which the policy shows all
-- rows, and compares the entered tenant itself. "condition" has the collection's id as its first key.
-- Only a scan of that index is wanted: a generic plan knows neither condition nor limit. So the other conditions are
-- written in forms that no index answers.
CREATE POLICY dispatcher ON vectorforge.chunks FOR SELECT TO vectorforge_dispatcher USING (true);
GRANT SELECT (tenant_id, id, collection_id, metadata, to_version) ON vectorforge.chunks TO vectorforge_dispatcher;
CREATE FUNCTION vectorforge.filter_candidates(condition jsonpath, most bigint)
RETURNS TABLE (id uuid, metadata jsonb)
LANGUAGE sql STABLE SECURITY DEFINER ROWS 100
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_indexscan = off
AS $$
    SELECT c.id, c.metadata FROM vectorforge.chunks AS c
    WHERE c.tenant_id || '' = nullif(current_setting('vectorforge.tenant', true), '') AND coalesce(c.to_version, 0) = 0
        AND jsonb_set('{}', ARRAY[c.collection_id::text], c.metadata) @@ condition
    LIMIT most
$$;
GRANT EXECUTE ON FUNCTION vectorforge.filter_candidates(jsonpath, bigint) TO vectorforge_app;
SELECT vectorforge.set_function_owner('vectorforge.filter_candidates(jsonpath, bigint)', 'vectorforge_dispatcher');
