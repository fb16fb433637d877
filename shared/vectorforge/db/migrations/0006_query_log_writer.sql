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

-- records: an array of objects with the table's columns as keys.
-- Returns how many rows are new or were completed, and how many were there already; of a query's records in the same
-- batch only one counts.
CREATE FUNCTION vectorforge.write_query_logs(records jsonb, OUT stored bigint, OUT already_there bigint)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    entry vectorforge.query_logs;
BEGIN
    stored := 0;
    already_there := 0;
    -- In the order of the key: two batches with the same rows then never wait for each other in a circle.
    FOR entry IN
        SELECT DISTINCT ON (given.tenant_id, given.id) given.*
        FROM jsonb_populate_recordset(NULL::vectorforge.query_logs, records) AS given
        ORDER BY given.tenant_id, given.id, given.outcome = 'started', given.created_at
    LOOP
        entry.created_at := coalesce(entry.created_at, now());
        -- Columns by name: one that a later migration adds gets its default, not NULL.
        INSERT INTO vectorforge.query_logs (
            tenant_id, id, collection_id, query_text, retrieved_chunk_ids, used_chunk_ids, generated_response,
            outcome, provider, model, prompt_tokens, completion_tokens, latency_ms, retrieval_ms, generation_ms,
            error_code, error_stage, created_at
        ) VALUES (
            entry.tenant_id, entry.id, entry.collection_id, entry.query_text, entry.retrieved_chunk_ids,
            entry.used_chunk_ids, entry.generated_response, entry.outcome, entry.provider, entry.model,
            entry.prompt_tokens, entry.completion_tokens, entry.latency_ms, entry.retrieval_ms,
            entry.generation_ms, entry.error_code, entry.error_stage, entry.created_at
        ) ON CONFLICT (tenant_id, id) DO NOTHING;
        IF NOT FOUND AND entry.outcome <> 'started' THEN
            UPDATE vectorforge.query_logs
            SET collection_id = entry.collection_id,
                query_text = entry.query_text,
                retrieved_chunk_ids = entry.retrieved_chunk_ids,
                used_chunk_ids = entry.used_chunk_ids,
                generated_response = entry.generated_response,
                outcome = entry.outcome,
                provider = entry.provider,
                model = entry.model,
                prompt_tokens = entry.prompt_tokens,
                completion_tokens = entry.completion_tokens,
                latency_ms = entry.latency_ms,
                retrieval_ms = entry.retrieval_ms,
                generation_ms = entry.generation_ms,
                error_code = entry.error_code,
                error_stage = entry.error_stage,
                created_at = entry.created_at
            WHERE tenant_id = entry.tenant_id AND id = entry.id AND outcome = 'started';
        END IF;
        IF FOUND THEN
            stored := stored + 1;
        ELSE
            already_there := already_there + 1;
        END IF;
    END LOOP;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.write_query_logs(jsonb) TO vectorforge_log_writer;
GRANT CREATE ON SCHEMA vectorforge TO vectorforge_log_keeper;
ALTER FUNCTION vectorforge.write_query_logs(jsonb) OWNER TO vectorforge_log_keeper;
REVOKE CREATE ON SCHEMA vectorforge FROM vectorforge_log_keeper;
