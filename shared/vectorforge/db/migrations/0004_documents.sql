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
    term_count bigint NOT NULL DEFAULT 0,
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

-- Maintain a collection's counts and data_version for every writer. Deferred to the commit, so that writers of one
-- collection wait for each other only there. As the owner, because the eraser may not update. A change of only the
-- number of words is not a change of the documents.
CREATE FUNCTION vectorforge.count_document() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE vectorforge.collections
    SET data_version = data_version + CASE
            WHEN TG_OP = 'UPDATE' AND NEW.version = OLD.version AND NEW.term_count <> OLD.term_count THEN 0 ELSE 1
        END,
        document_count = document_count + CASE TG_OP WHEN 'INSERT' THEN 1 WHEN 'DELETE' THEN -1 ELSE 0 END,
        chunk_count = chunk_count
            + CASE TG_OP WHEN 'DELETE' THEN 0 ELSE NEW.chunk_count END
            - CASE TG_OP WHEN 'INSERT' THEN 0 ELSE OLD.chunk_count END,
        term_count = term_count
            + CASE TG_OP WHEN 'DELETE' THEN 0 ELSE NEW.term_count END
            - CASE TG_OP WHEN 'INSERT' THEN 0 ELSE OLD.term_count END
    WHERE tenant_id = CASE TG_OP WHEN 'DELETE' THEN OLD.tenant_id ELSE NEW.tenant_id END
      AND id = CASE TG_OP WHEN 'DELETE' THEN OLD.collection_id ELSE NEW.collection_id END;
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER count_document AFTER INSERT OR UPDATE OR DELETE ON vectorforge.documents
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION vectorforge.count_document();

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
