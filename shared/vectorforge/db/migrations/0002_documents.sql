-- Collections, documents and their passages.
SET LOCAL ROLE vectorforge_migrator;

CREATE TABLE vectorforge.collections (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    id uuid NOT NULL,
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    description text NOT NULL DEFAULT '',
    embedding_provider text NOT NULL,
    embedding_model text NOT NULL,
    dimension int NOT NULL CHECK (dimension BETWEEN 1 AND 16000),
    distance_metric text NOT NULL CHECK (distance_metric IN ('cosine', 'inner_product', 'l2')),
    query_prefix text NOT NULL DEFAULT '',
    document_prefix text NOT NULL DEFAULT '',
    data_version bigint NOT NULL DEFAULT 0,
    document_count bigint NOT NULL DEFAULT 0,
    chunk_count bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name)
);

-- A source may be longer than a btree key, so its hash is what is unique. convert_to() is only "stable" because
-- of conversions one may define; to UTF8 it always gives the same bytes.
CREATE FUNCTION vectorforge.source_key(source text) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
RETURN sha256(convert_to(source, 'UTF8'));

CREATE TABLE vectorforge.documents (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    id uuid NOT NULL,
    collection_id uuid NOT NULL,
    source text NOT NULL CHECK (char_length(source) BETWEEN 1 AND 2000),
    source_key bytea NOT NULL GENERATED ALWAYS AS (vectorforge.source_key(source)) STORED,
    -- the file that this is a record of: what the file no longer holds when it comes again is deleted
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

-- Keeps a collection's counts and data_version, whoever changes its documents. Deferred to the commit, so that
-- writers of one collection wait for each other only there. As the owner, because the eraser may not update.
CREATE FUNCTION vectorforge.count_document() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE vectorforge.collections
    SET data_version = data_version + 1,
        document_count = document_count + CASE TG_OP WHEN 'INSERT' THEN 1 WHEN 'DELETE' THEN -1 ELSE 0 END,
        chunk_count = chunk_count
            + CASE TG_OP WHEN 'DELETE' THEN 0 ELSE NEW.chunk_count END
            - CASE TG_OP WHEN 'INSERT' THEN 0 ELSE OLD.chunk_count END
    WHERE tenant_id = CASE TG_OP WHEN 'DELETE' THEN OLD.tenant_id ELSE NEW.tenant_id END
      AND id = CASE TG_OP WHEN 'DELETE' THEN OLD.collection_id ELSE NEW.collection_id END;
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER count_document AFTER INSERT OR UPDATE OR DELETE ON vectorforge.documents
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION vectorforge.count_document();

-- A chunk is current from the version that brought it until the version that retired it (to_version).
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
    -- One current chunk at each place. Deferred, because a new version moves chunks it keeps.
    CONSTRAINT chunks_one_current_per_ordinal
        EXCLUDE USING btree (tenant_id WITH =, document_id WITH =, ordinal WITH =) WHERE (to_version IS NULL)
        DEFERRABLE INITIALLY DEFERRED
);
CREATE INDEX chunks_by_document ON vectorforge.chunks (tenant_id, collection_id, document_id);

-- Vectors apart from the passages: an exact scan then reads little else (7 times faster than out of line).
-- One partition ("space") for each metric and dimension, made by ensure_embedding_space().
CREATE TABLE vectorforge.embeddings (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    space text NOT NULL,
    collection_id uuid NOT NULL,
    document_id uuid NOT NULL,
    chunk_id uuid NOT NULL,
    embedding public.vector NOT NULL,
    PRIMARY KEY (tenant_id, chunk_id, space),
    FOREIGN KEY (tenant_id, collection_id, document_id)
        REFERENCES vectorforge.documents (tenant_id, collection_id, id) ON DELETE CASCADE
) PARTITION BY LIST (space);
CREATE INDEX embeddings_by_scope ON vectorforge.embeddings (tenant_id, collection_id, document_id);

DO $$
DECLARE
    table_name text;
BEGIN
    FOREACH table_name IN ARRAY ARRAY['collections', 'documents', 'chunks', 'embeddings'] LOOP
        EXECUTE format('ALTER TABLE vectorforge.%I ENABLE ROW LEVEL SECURITY', table_name);
        EXECUTE format('ALTER TABLE vectorforge.%I FORCE ROW LEVEL SECURITY', table_name);
        EXECUTE format(
            'CREATE POLICY tenant ON vectorforge.%I '
            'USING (tenant_id = NULLIF(current_setting(''vectorforge.tenant'', true), ''''))', table_name
        );
        EXECUTE format(
            'GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.%I TO vectorforge_app', table_name
        );
        EXECUTE format('GRANT SELECT, DELETE ON vectorforge.%I TO vectorforge_eraser', table_name);
    END LOOP;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.source_key(text) TO vectorforge_app, vectorforge_eraser;
