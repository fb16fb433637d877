-- What a replay compares, and the steps of a search: docs/use/replay.md, docs/use/steps.md.
SET LOCAL ROLE vectorforge_migrator;

-- without texts: {"sha256", "prompt_sha256", "model", "temperature", "top_p", "max_tokens", "context_limit", "history"}
ALTER TABLE vectorforge.query_logs ADD COLUMN request jsonb;
-- of a query with effort or intents, in figures: sub-queries are words of the user and are not stored
ALTER TABLE vectorforge.query_logs ADD COLUMN steps jsonb;
GRANT UPDATE (request, steps) ON vectorforge.query_logs TO vectorforge_log_keeper;

-- As in 0011, with the new columns.
CREATE OR REPLACE FUNCTION vectorforge.write_query_logs(records jsonb, OUT stored bigint, OUT already_there bigint)
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
            generation_ms, first_token_ms, created_at, request, steps
        ) VALUES (
            entry.tenant_id, entry.id, entry.collection_id, entry.conversation_id, entry.query_text,
            entry.retrieved_chunk_ids, entry.used_chunk_ids, entry.generated_response, entry.outcome,
            entry.error_code, entry.error_stage, entry.provider, entry.model, entry.preset, entry.variant,
            entry.cached, entry.degraded, entry.quality, entry.prompt_tokens, entry.completion_tokens,
            entry.cost_usd, entry.latency_ms, entry.retrieval_ms, entry.context_ms, entry.generation_ms,
            entry.first_token_ms, entry.created_at, entry.request, entry.steps
        ) ON CONFLICT (tenant_id, id) DO NOTHING;
        IF NOT FOUND AND entry.outcome <> 'started' THEN
            UPDATE vectorforge.query_logs
            SET (collection_id, conversation_id, query_text, retrieved_chunk_ids, used_chunk_ids,
                 generated_response, outcome, error_code, error_stage, provider, model, preset, variant, cached,
                 degraded, quality, prompt_tokens, completion_tokens, cost_usd, latency_ms, retrieval_ms,
                 context_ms, generation_ms, first_token_ms, created_at, request, steps) = ROW (
                entry.collection_id, entry.conversation_id, entry.query_text, entry.retrieved_chunk_ids,
                entry.used_chunk_ids, entry.generated_response, entry.outcome, entry.error_code,
                entry.error_stage, entry.provider, entry.model, entry.preset, entry.variant, entry.cached,
                entry.degraded, entry.quality, entry.prompt_tokens, entry.completion_tokens, entry.cost_usd,
                entry.latency_ms, entry.retrieval_ms, entry.context_ms, entry.generation_ms,
                entry.first_token_ms, entry.created_at, entry.request, entry.steps
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
