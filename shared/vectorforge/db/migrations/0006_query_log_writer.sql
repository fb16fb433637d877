-- How the log writer stores what comes out of the queue: a batch of many tenants in one statement, in any order and
-- any number of times. A record "started", sent before the answer began, gives way to the one of the query's end;
-- nothing else is ever changed. The caller may neither read nor change a row: the function acts as a role that
-- nobody can log in as, and that has no other right.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'vectorforge_log_keeper') THEN
        BEGIN
            CREATE ROLE vectorforge_log_keeper NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;  -- a migrator of another database was faster
        END;
    END IF;
    -- As in 0001: to give a function to a role, one must be able to become it.
    IF NOT pg_catalog.pg_has_role(current_user, 'vectorforge_log_keeper', 'SET') THEN
        BEGIN
            GRANT vectorforge_log_keeper TO CURRENT_USER;
        EXCEPTION WHEN unique_violation THEN
            NULL;
        END;
    END IF;
    IF NOT pg_catalog.pg_has_role('vectorforge_migrator', 'vectorforge_log_keeper', 'SET') THEN
        BEGIN
            GRANT vectorforge_log_keeper TO vectorforge_migrator;
        EXCEPTION WHEN unique_violation THEN
            NULL;
        END;
    END IF;
END
$$;

SET LOCAL ROLE vectorforge_migrator;

GRANT USAGE ON SCHEMA vectorforge TO vectorforge_log_keeper;
CREATE POLICY log_keeper ON vectorforge.query_logs TO vectorforge_log_keeper USING (true);
GRANT INSERT,
      SELECT (tenant_id, id, outcome),
      UPDATE (collection_id, query_text, retrieved_chunk_ids, used_chunk_ids, generated_response, outcome, provider,
              model, prompt_tokens, completion_tokens, latency_ms, retrieval_ms, generation_ms, error_code,
              error_stage, created_at)
    ON vectorforge.query_logs TO vectorforge_log_keeper;

-- records: an array of objects whose keys are the table's columns.
-- Returns how many rows are new or were completed, and how many were there already.
CREATE FUNCTION vectorforge.write_query_logs(records jsonb) RETURNS TABLE (stored bigint, already_there bigint)
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    -- Sorted by key, so that two batches with the same rows lock them in the same order.
    WITH given AS (
        SELECT DISTINCT ON (tenant_id, id) *
        FROM jsonb_to_recordset(records) AS record (
            tenant_id text, id uuid, collection_id uuid, query_text text, retrieved_chunk_ids jsonb,
            used_chunk_ids jsonb, generated_response text, outcome text, provider text, model text,
            prompt_tokens int, completion_tokens int, latency_ms double precision, retrieval_ms double precision,
            generation_ms double precision, error_code text, error_stage text, created_at timestamptz
        )
        ORDER BY tenant_id, id, outcome = 'started', created_at
    ), written AS (
        INSERT INTO vectorforge.query_logs AS present (
            tenant_id, id, collection_id, query_text, retrieved_chunk_ids, used_chunk_ids, generated_response,
            outcome, provider, model, prompt_tokens, completion_tokens, latency_ms, retrieval_ms, generation_ms,
            error_code, error_stage, created_at
        )
        SELECT
            tenant_id, id, collection_id, query_text, retrieved_chunk_ids, used_chunk_ids, generated_response,
            outcome, provider, model, prompt_tokens, completion_tokens, latency_ms, retrieval_ms, generation_ms,
            error_code, error_stage, coalesce(created_at, now())
        FROM given
        ON CONFLICT (tenant_id, id) DO UPDATE SET
            collection_id = excluded.collection_id,
            query_text = excluded.query_text,
            retrieved_chunk_ids = excluded.retrieved_chunk_ids,
            used_chunk_ids = excluded.used_chunk_ids,
            generated_response = excluded.generated_response,
            outcome = excluded.outcome,
            provider = excluded.provider,
            model = excluded.model,
            prompt_tokens = excluded.prompt_tokens,
            completion_tokens = excluded.completion_tokens,
            latency_ms = excluded.latency_ms,
            retrieval_ms = excluded.retrieval_ms,
            generation_ms = excluded.generation_ms,
            error_code = excluded.error_code,
            error_stage = excluded.error_stage,
            created_at = excluded.created_at
        WHERE present.outcome = 'started' AND excluded.outcome <> 'started'
        RETURNING 1
    )
    SELECT (SELECT count(*) FROM written), (SELECT count(*) FROM given) - (SELECT count(*) FROM written)
$$;
GRANT EXECUTE ON FUNCTION vectorforge.write_query_logs(jsonb) TO vectorforge_log_writer;
GRANT CREATE ON SCHEMA vectorforge TO vectorforge_log_keeper;
ALTER FUNCTION vectorforge.write_query_logs(jsonb) OWNER TO vectorforge_log_keeper;
REVOKE CREATE ON SCHEMA vectorforge FROM vectorforge_log_keeper;
