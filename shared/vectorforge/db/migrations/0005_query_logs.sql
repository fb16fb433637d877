-- The record of every question. It refers to collections and chunks without foreign keys: a log must be
-- writable after its collection is gone.
SET LOCAL ROLE vectorforge_migrator;

CREATE TABLE vectorforge.query_logs (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    id uuid NOT NULL,
    collection_id uuid NOT NULL,
    query_text text NOT NULL,
    retrieved_chunk_ids jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(retrieved_chunk_ids) = 'array'),
    used_chunk_ids jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(used_chunk_ids) = 'array'),
    generated_response text NOT NULL DEFAULT '',
    outcome text NOT NULL,
    provider text,
    model text,
    prompt_tokens int,
    completion_tokens int,
    latency_ms double precision NOT NULL,
    retrieval_ms double precision,
    generation_ms double precision,
    error_code text,
    error_stage text,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX query_logs_by_time ON vectorforge.query_logs (tenant_id, created_at);
CREATE INDEX query_logs_by_collection ON vectorforge.query_logs (tenant_id, collection_id, created_at);

ALTER TABLE vectorforge.query_logs ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.query_logs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vectorforge.query_logs
    USING (tenant_id = NULLIF(current_setting('vectorforge.tenant', true), ''));
GRANT SELECT, INSERT, DELETE ON vectorforge.query_logs TO vectorforge_app;
GRANT INSERT ON vectorforge.query_logs TO vectorforge_log_writer;
GRANT SELECT, DELETE ON vectorforge.query_logs TO vectorforge_eraser;

-- What is old goes, of all tenants: queries, and jobs that have ended. A bounded number a call.
CREATE POLICY dispatcher ON vectorforge.query_logs TO vectorforge_dispatcher USING (true);
GRANT SELECT (tenant_id, id, created_at), DELETE ON vectorforge.query_logs TO vectorforge_dispatcher;
GRANT SELECT (finished_at), DELETE ON vectorforge.ingestion_jobs TO vectorforge_dispatcher;
CREATE FUNCTION vectorforge.delete_old_logs(kept interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    queries bigint;
    jobs bigint;
BEGIN
    IF kept IS NULL OR kept < interval '1 day' THEN
        RAISE EXCEPTION 'kept out of range' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    DELETE FROM vectorforge.query_logs WHERE (tenant_id, id) IN (
        SELECT old.tenant_id, old.id FROM vectorforge.query_logs AS old
        WHERE old.created_at < clock_timestamp() - kept LIMIT 5000
    );
    GET DIAGNOSTICS queries = ROW_COUNT;
    DELETE FROM vectorforge.ingestion_jobs WHERE (tenant_id, id) IN (
        SELECT old.tenant_id, old.id FROM vectorforge.ingestion_jobs AS old
        WHERE old.finished_at < clock_timestamp() - kept LIMIT 500
    );
    GET DIAGNOSTICS jobs = ROW_COUNT;
    RETURN queries + jobs;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.delete_old_logs(interval) TO vectorforge_app;
GRANT CREATE ON SCHEMA vectorforge TO vectorforge_dispatcher;
ALTER FUNCTION vectorforge.delete_old_logs(interval) OWNER TO vectorforge_dispatcher;
REVOKE CREATE ON SCHEMA vectorforge FROM vectorforge_dispatcher;
