-- The log of queries, its writer and its retention.
SET LOCAL ROLE vectorforge_migrator;

-- One row for each query. No foreign keys to collections and chunks: a log must be writable after they are deleted.
CREATE TABLE vectorforge.query_logs (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    id uuid NOT NULL,
    collection_id uuid NOT NULL,
    conversation_id uuid,
    query_text text NOT NULL,
    retrieved_chunk_ids jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(retrieved_chunk_ids) = 'array'),
    used_chunk_ids jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(used_chunk_ids) = 'array'),
    generated_response text NOT NULL DEFAULT '',
    outcome text NOT NULL,
    error_code text,
    error_stage text,
    provider text,
    model text,
    preset text,
    variant text,
    cached boolean NOT NULL DEFAULT false,
    -- fallbacks that the answer went through, in order: an array of strings
    degraded jsonb NOT NULL DEFAULT '[]',
    -- results of the checks: an object of numbers
    quality jsonb,
    prompt_tokens int,
    completion_tokens int,
    cost_usd double precision,
    latency_ms double precision NOT NULL,
    retrieval_ms double precision,
    context_ms double precision,
    generation_ms double precision,
    first_token_ms double precision,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- set when query and answer were emptied
    text_erased_at timestamptz,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX query_logs_by_time ON vectorforge.query_logs (tenant_id, created_at);
CREATE INDEX query_logs_by_collection ON vectorforge.query_logs (tenant_id, collection_id, created_at);
-- for erase_old_log_texts(): the rows that still have a text, oldest first
CREATE INDEX query_logs_with_text ON vectorforge.query_logs (created_at) WHERE text_erased_at IS NULL;
SELECT vectorforge.enable_tenant_isolation('query_logs');
GRANT SELECT, INSERT, DELETE ON vectorforge.query_logs TO vectorforge_app;
GRANT INSERT ON vectorforge.query_logs TO vectorforge_log_writer;
GRANT SELECT, DELETE ON vectorforge.query_logs TO vectorforge_eraser;

-- Store records from the queue: a batch of many tenants in one statement, in any order and any number of times. A
-- record "started", sent before the answer began, is replaced by the record of the query's end; nothing else is ever
-- changed. The log writer may neither read nor change a row: the function runs as a role that has no other right.
CREATE POLICY log_keeper ON vectorforge.query_logs TO vectorforge_log_keeper USING (true);
GRANT INSERT,
      SELECT (tenant_id, id, outcome),
      UPDATE (collection_id, conversation_id, query_text, retrieved_chunk_ids, used_chunk_ids, generated_response,
              outcome, error_code, error_stage, provider, model, preset, variant, cached, degraded, quality,
              prompt_tokens, completion_tokens, cost_usd, latency_ms, retrieval_ms, context_ms, generation_ms,
              first_token_ms, created_at)
    ON vectorforge.query_logs TO vectorforge_log_keeper;
-- records: an array of objects with the table's columns as keys.
-- Returns how many rows are new or completed, and how many existed; of several records of one query one counts.
CREATE FUNCTION vectorforge.write_query_logs(records jsonb, OUT stored bigint, OUT already_there bigint)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    entry vectorforge.query_logs;
BEGIN
    stored := 0;
    already_there := 0;
    -- In the order of the key, so that two batches with the same rows do not deadlock.
    FOR entry IN
        SELECT DISTINCT ON (given.tenant_id, given.id) given.*
        FROM jsonb_populate_recordset(NULL::vectorforge.query_logs, records) AS given
        ORDER BY given.tenant_id, given.id, given.outcome = 'started', given.created_at
    LOOP
        entry.created_at := coalesce(entry.created_at, now());
        entry.cached := coalesce(entry.cached, false);
        entry.degraded := coalesce(entry.degraded, '[]');
        -- Columns by name: one that a later migration adds gets its default, not NULL.
        INSERT INTO vectorforge.query_logs (
            tenant_id, id, collection_id, conversation_id, query_text, retrieved_chunk_ids, used_chunk_ids,
            generated_response, outcome, error_code, error_stage, provider, model, preset, variant, cached,
            degraded, quality, prompt_tokens, completion_tokens, cost_usd, latency_ms, retrieval_ms, context_ms,
            generation_ms, first_token_ms, created_at
        ) VALUES (
            entry.tenant_id, entry.id, entry.collection_id, entry.conversation_id, entry.query_text,
            entry.retrieved_chunk_ids, entry.used_chunk_ids, entry.generated_response, entry.outcome,
            entry.error_code, entry.error_stage, entry.provider, entry.model, entry.preset, entry.variant,
            entry.cached, entry.degraded, entry.quality, entry.prompt_tokens, entry.completion_tokens,
            entry.cost_usd, entry.latency_ms, entry.retrieval_ms, entry.context_ms, entry.generation_ms,
            entry.first_token_ms, entry.created_at
        ) ON CONFLICT (tenant_id, id) DO NOTHING;
        IF NOT FOUND AND entry.outcome <> 'started' THEN
            UPDATE vectorforge.query_logs
            SET (collection_id, conversation_id, query_text, retrieved_chunk_ids, used_chunk_ids,
                 generated_response, outcome, error_code, error_stage, provider, model, preset, variant, cached,
                 degraded, quality, prompt_tokens, completion_tokens, cost_usd, latency_ms, retrieval_ms,
                 context_ms, generation_ms, first_token_ms, created_at) = ROW (
                entry.collection_id, entry.conversation_id, entry.query_text, entry.retrieved_chunk_ids,
                entry.used_chunk_ids, entry.generated_response, entry.outcome, entry.error_code,
                entry.error_stage, entry.provider, entry.model, entry.preset, entry.variant, entry.cached,
                entry.degraded, entry.quality, entry.prompt_tokens, entry.completion_tokens, entry.cost_usd,
                entry.latency_ms, entry.retrieval_ms, entry.context_ms, entry.generation_ms,
                entry.first_token_ms, entry.created_at
            )
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
SELECT vectorforge.set_function_owner('vectorforge.write_query_logs(jsonb)', 'vectorforge_log_keeper');

-- Delete logs and finished jobs older than the retention, across tenants; a bounded number in one call.
CREATE POLICY dispatcher ON vectorforge.query_logs TO vectorforge_dispatcher USING (true);
GRANT SELECT (tenant_id, id, created_at, text_erased_at), UPDATE (query_text, generated_response, text_erased_at),
      DELETE
    ON vectorforge.query_logs TO vectorforge_dispatcher;
CREATE FUNCTION vectorforge.delete_old_logs(retention interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    queries bigint;
    jobs bigint;
BEGIN
    IF retention IS NULL OR retention < interval '1 day' THEN
        RAISE EXCEPTION 'retention must be at least 1 day' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    DELETE FROM vectorforge.query_logs WHERE (tenant_id, id) IN (
        SELECT old.tenant_id, old.id FROM vectorforge.query_logs AS old
        WHERE old.created_at < clock_timestamp() - retention LIMIT 5000
    );
    GET DIAGNOSTICS queries = ROW_COUNT;
    DELETE FROM vectorforge.ingestion_jobs WHERE (tenant_id, id) IN (
        SELECT old.tenant_id, old.id FROM vectorforge.ingestion_jobs AS old
        WHERE old.finished_at < clock_timestamp() - retention LIMIT 500
    );
    GET DIAGNOSTICS jobs = ROW_COUNT;
    RETURN queries + jobs;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.delete_old_logs(interval) TO vectorforge_app;
SELECT vectorforge.set_function_owner('vectorforge.delete_old_logs(interval)', 'vectorforge_dispatcher');
