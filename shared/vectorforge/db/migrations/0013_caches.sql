-- Caches of answers and of query embeddings, shared by all processes.
SET LOCAL ROLE vectorforge_migrator;

CREATE TABLE vectorforge.cached_answers (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    -- sha256 of everything that the answer depends on, except the documents
    key bytea NOT NULL CHECK (octet_length(key) = 32),
    collection_id uuid NOT NULL,
    -- the collection's, read before the search: an answer of another version is never served
    data_version bigint NOT NULL,
    answer jsonb NOT NULL CHECK (jsonb_typeof(answer) = 'object'),
    created_at timestamptz NOT NULL DEFAULT now(),
    -- fresh until then; afterwards used as a fallback only
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, key),
    FOREIGN KEY (tenant_id, collection_id) REFERENCES vectorforge.collections (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX cached_answers_by_version ON vectorforge.cached_answers (tenant_id, collection_id, data_version);
CREATE INDEX cached_answers_by_expiry ON vectorforge.cached_answers (expires_at);

CREATE TABLE vectorforge.cached_embeddings (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    -- sha256 of provider, model and text
    key bytea NOT NULL CHECK (octet_length(key) = 32),
    -- little-endian 4-byte floats
    vector bytea NOT NULL CHECK (octet_length(vector) BETWEEN 4 AND 64000),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, key)
);
CREATE INDEX cached_embeddings_by_expiry ON vectorforge.cached_embeddings (expires_at);

SELECT vectorforge.enable_tenant_isolation('cached_answers'),
    vectorforge.enable_tenant_isolation('cached_embeddings');
GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.cached_answers, vectorforge.cached_embeddings TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.cached_answers, vectorforge.cached_embeddings TO vectorforge_eraser;

-- Delete expired entries, across tenants; a bounded number in one call. Answers stay for "stale" longer, as fallbacks.
CREATE POLICY dispatcher ON vectorforge.cached_answers TO vectorforge_dispatcher USING (true);
CREATE POLICY dispatcher ON vectorforge.cached_embeddings TO vectorforge_dispatcher USING (true);
GRANT SELECT (tenant_id, key, expires_at), DELETE ON vectorforge.cached_answers, vectorforge.cached_embeddings
    TO vectorforge_dispatcher;
CREATE FUNCTION vectorforge.delete_expired_caches(stale interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    answers bigint;
    embeddings bigint;
BEGIN
    IF stale IS NULL OR stale < interval '0' THEN
        RAISE EXCEPTION 'stale must be at least 0' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    DELETE FROM vectorforge.cached_answers WHERE (tenant_id, key) IN (
        SELECT old.tenant_id, old.key FROM vectorforge.cached_answers AS old
        WHERE old.expires_at < clock_timestamp() - stale LIMIT 1000
    );
    GET DIAGNOSTICS answers = ROW_COUNT;
    DELETE FROM vectorforge.cached_embeddings WHERE (tenant_id, key) IN (
        SELECT old.tenant_id, old.key FROM vectorforge.cached_embeddings AS old
        WHERE old.expires_at < clock_timestamp() LIMIT 1000
    );
    GET DIAGNOSTICS embeddings = ROW_COUNT;
    RETURN answers + embeddings;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.delete_expired_caches(interval) TO vectorforge_app;
SELECT vectorforge.set_function_owner('vectorforge.delete_expired_caches(interval)', 'vectorforge_dispatcher');
