-- What the query log says of an answer beyond its text: where it came from, what it cost, how good it was.
SET LOCAL ROLE vectorforge_migrator;

ALTER TABLE vectorforge.query_logs
    ADD COLUMN preset text,
    ADD COLUMN variant text,
    ADD COLUMN conversation_id uuid,
    ADD COLUMN cached boolean NOT NULL DEFAULT false,
    -- steps of the degradation ladder that the answer came down, in order: an array of strings
    ADD COLUMN degraded jsonb NOT NULL DEFAULT '[]',
    -- what the checks found: an object of numbers
    ADD COLUMN quality jsonb,
    ADD COLUMN context_ms double precision,
    ADD COLUMN first_token_ms double precision,
    ADD COLUMN cost_usd double precision;

GRANT UPDATE (preset, variant, conversation_id, cached, degraded, quality, context_ms, first_token_ms, cost_usd)
    ON vectorforge.query_logs TO vectorforge_log_keeper;

-- As in 0006, with the new columns. A record of an older program lacks them.
CREATE OR REPLACE FUNCTION vectorforge.write_query_logs(records jsonb, OUT stored bigint, OUT already_there bigint)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    entry vectorforge.query_logs;
BEGIN
    stored := 0;
    already_there := 0;
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
            tenant_id, id, collection_id, query_text, retrieved_chunk_ids, used_chunk_ids, generated_response,
            outcome, provider, model, prompt_tokens, completion_tokens, latency_ms, retrieval_ms, generation_ms,
            error_code, error_stage, created_at, preset, variant, conversation_id, cached, degraded, quality,
            context_ms, first_token_ms, cost_usd
        ) VALUES (
            entry.tenant_id, entry.id, entry.collection_id, entry.query_text, entry.retrieved_chunk_ids,
            entry.used_chunk_ids, entry.generated_response, entry.outcome, entry.provider, entry.model,
            entry.prompt_tokens, entry.completion_tokens, entry.latency_ms, entry.retrieval_ms,
            entry.generation_ms, entry.error_code, entry.error_stage, entry.created_at, entry.preset,
            entry.variant, entry.conversation_id, entry.cached, entry.degraded, entry.quality,
            entry.context_ms, entry.first_token_ms, entry.cost_usd
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
                created_at = entry.created_at,
                preset = entry.preset,
                variant = entry.variant,
                conversation_id = entry.conversation_id,
                cached = entry.cached,
                degraded = entry.degraded,
                quality = entry.quality,
                context_ms = entry.context_ms,
                first_token_ms = entry.first_token_ms,
                cost_usd = entry.cost_usd
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
