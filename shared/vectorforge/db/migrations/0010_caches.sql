-- Answers and vectors of questions that were asked before, shared by all processes.
SET LOCAL ROLE vectorforge_migrator;

CREATE TABLE vectorforge.cached_answers (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    -- sha256 of everything that the answer depends on, but for the documents
    key bytea NOT NULL CHECK (octet_length(key) = 32),
    collection_id uuid NOT NULL,
    -- of the collection, read before the search: an answer of another version is never served
    data_version bigint NOT NULL,
    answer jsonb NOT NULL CHECK (jsonb_typeof(answer) = 'object'),
    created_at timestamptz NOT NULL DEFAULT now(),
    -- until then it is fresh; later only an answer for want of a better one
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

ALTER TABLE vectorforge.cached_answers ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.cached_answers FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vectorforge.cached_answers
    USING (tenant_id = NULLIF(current_setting('vectorforge.tenant', true), ''));
ALTER TABLE vectorforge.cached_embeddings ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.cached_embeddings FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vectorforge.cached_embeddings
    USING (tenant_id = NULLIF(current_setting('vectorforge.tenant', true), ''));
GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.cached_answers, vectorforge.cached_embeddings TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.cached_answers, vectorforge.cached_embeddings TO vectorforge_eraser;

-- What has expired goes, of all tenants; a bounded number a call.
CREATE POLICY dispatcher ON vectorforge.cached_answers TO vectorforge_dispatcher USING (true);
CREATE POLICY dispatcher ON vectorforge.cached_embeddings TO vectorforge_dispatcher USING (true);
GRANT SELECT (tenant_id, key, expires_at), DELETE ON vectorforge.cached_answers, vectorforge.cached_embeddings
    TO vectorforge_dispatcher;
CREATE FUNCTION vectorforge.delete_expired_caches(kept interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    answers bigint;
    embeddings bigint;
BEGIN
    IF kept IS NULL OR kept < interval '0' THEN
        RAISE EXCEPTION 'kept out of range' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    DELETE FROM vectorforge.cached_answers WHERE (tenant_id, key) IN (
        SELECT old.tenant_id, old.key FROM vectorforge.cached_answers AS old
        WHERE old.expires_at < clock_timestamp() - kept LIMIT 1000
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
GRANT CREATE ON SCHEMA vectorforge TO vectorforge_dispatcher;
ALTER FUNCTION vectorforge.delete_expired_caches(interval) OWNER TO vectorforge_dispatcher;
REVOKE CREATE ON SCHEMA vectorforge FROM vectorforge_dispatcher;
