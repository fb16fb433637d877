-- Steps of an erasure, executed by any worker or client; and retention of logged texts.
SET LOCAL ROLE vectorforge_migrator;

-- Erase answers in conversations whose log record, and with it the list of their chunks, no longer exists. Not those of
-- the last day, whose record may still arrive: refuse_erased_log() handles it then.
CREATE FUNCTION vectorforge.erase_unknown_answers(erasure vectorforge.erasures, most int) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    messages bigint;
BEGIN
    UPDATE vectorforge.conversation_messages AS m SET content = '[erased]'
    WHERE m.tenant_id = erasure.tenant_id AND m.ctid = ANY (ARRAY(
        SELECT n.ctid FROM vectorforge.conversation_messages AS n
        WHERE n.tenant_id = erasure.tenant_id AND n.role = 'assistant' AND n.content <> '[erased]'
            AND n.created_at < clock_timestamp() - interval '1 day' AND NOT EXISTS (
                SELECT FROM vectorforge.query_logs AS l WHERE l.tenant_id = n.tenant_id AND l.id = n.query_id
            )
        LIMIT most
    ));
    GET DIAGNOSTICS messages = ROW_COUNT;
    PERFORM vectorforge.count_erased(erasure, 'texts of conversation_messages', messages);
    RETURN messages;
END
$$;

-- Execute one step of an erasure of the entered tenant, small enough for a transaction of its own; the next call
-- continues. "waits": another transaction must finish first; try again soon. Runs as the owner, so that a table
-- without a DELETE grant for the eraser is erased as well. Row-level security applies: only the entered tenant is
-- visible.
CREATE FUNCTION vectorforge.erasure_step(erasure uuid, most int, OUT stage text, OUT rows bigint, OUT waits boolean)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '3s'
AS $$
DECLARE
    tenant constant text := NULLIF(current_setting('vectorforge.tenant', true), '');
    it vectorforge.erasures;
    documents uuid[];
    following text;
BEGIN
    IF most IS NULL OR most NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'most must be between 1 and 10000' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    rows := 0;
    waits := false;
    SELECT e.* INTO it FROM vectorforge.erasures AS e WHERE e.tenant_id = tenant AND e.id = erasure FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no such erasure' USING ERRCODE = 'no_data_found';
    END IF;
    IF it.stage = 'waiting' THEN
        IF it.kind = 'tenant' THEN
            -- Wait for the transactions that entered the tenant before it was closed.
            PERFORM pg_advisory_xact_lock(vectorforge.tenant_lock(tenant));
            following := 'rows';
        ELSE
            following := 'jobs';
        END IF;
    ELSIF it.stage = 'jobs' THEN
        waits := vectorforge.erase_jobs(it);
        following := CASE WHEN waits THEN 'jobs' ELSE 'documents' END;
    ELSIF it.stage = 'documents' THEN
        documents := vectorforge.documents_to_erase(it, most);
        IF documents IS NOT NULL THEN
            rows := vectorforge.erase_documents(it, documents);
            following := 'documents';
        ELSIF it.kind = 'profile' THEN
            rows := vectorforge.erase_rows(
                it, 'profiles', false, 'tenant_id = $1 AND collection_id = $4 AND profile_id = $5', NULL, NULL
            );
            following := 'caches';
        ELSE
            following := CASE it.kind WHEN 'collection' THEN 'collection' ELSE 'caches' END;
        END IF;
    ELSIF it.stage = 'collection' THEN
        rows := vectorforge.erase_rest(it, most);
        following := CASE WHEN rows > 0 THEN 'collection' ELSE 'caches' END;
    ELSIF it.stage = 'caches' THEN
        -- Wait for transactions from before the tombstones; what they wrote is then found here and in the log.
        PERFORM pg_advisory_xact_lock(vectorforge.tenant_lock(tenant));
        rows := vectorforge.erase_rows(
            it, 'cached_answers', false, 'tenant_id = $1 AND collection_id = $4', NULL, most
        );
        following := CASE WHEN rows > 0 THEN 'caches' ELSE 'logs' END;
    ELSIF it.stage = 'logs' THEN
        rows := vectorforge.erase_logs(it, most);
        following := CASE WHEN rows > 0 THEN 'logs' ELSE 'conversations' END;
    ELSIF it.stage = 'conversations' THEN
        rows := vectorforge.erase_unknown_answers(it, most);
        following := CASE WHEN rows > 0 THEN 'conversations' ELSE 'objects' END;
    ELSIF it.stage = 'rows' THEN
        rows := vectorforge.erase_rest(it, most);
        following := CASE WHEN rows > 0 THEN 'rows' ELSE 'objects' END;
    ELSE
        following := it.stage;
    END IF;
    UPDATE vectorforge.erasures AS e
    SET stage = following, lease_expires_at = clock_timestamp() + interval '30 seconds'
    WHERE e.tenant_id = tenant AND e.id = erasure AND e.stage <> 'done';
    stage := following;
EXCEPTION WHEN lock_not_available THEN
    stage := coalesce(it.stage, 'waiting');
    rows := 0;
    waits := true;
END
$$;

GRANT EXECUTE ON FUNCTION vectorforge.erasure_step(uuid, int) TO vectorforge_app, vectorforge_eraser;

-- Record uploaded files that were deleted from their bucket.
CREATE FUNCTION vectorforge.note_erased_objects(erasure uuid, keys text[], number bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE vectorforge.erasures AS e
    SET objects = ARRAY(SELECT o FROM unnest(e.objects) AS o WHERE o <> ALL (keys)),
        counts = e.counts || CASE WHEN number = 0 THEN '{}' ELSE jsonb_build_object(
            'uploaded files', coalesce((e.counts ->> 'uploaded files')::bigint, 0) + number
        ) END
    WHERE e.tenant_id = NULLIF(current_setting('vectorforge.tenant', true), '') AND e.id = erasure
        AND e.stage = 'objects';
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.note_erased_objects(uuid, text[], bigint)
    TO vectorforge_app, vectorforge_eraser;

-- For workers, across tenants: an erasure that no process is executing.
CREATE POLICY dispatcher ON vectorforge.erasures TO vectorforge_dispatcher USING (true);
GRANT SELECT (tenant_id, id, stage, lease_expires_at, begun_at), UPDATE (lease_expires_at)
    ON vectorforge.erasures TO vectorforge_dispatcher;
CREATE FUNCTION vectorforge.claim_erasure(lease interval)
RETURNS TABLE (claimed_tenant_id text, claimed_erasure_id uuid)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF lease IS NULL OR lease <= interval '0' OR lease > interval '1 day' THEN
        RAISE EXCEPTION 'lease must be between 0 and 1 day' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT e.tenant_id, e.id INTO claimed_tenant_id, claimed_erasure_id FROM vectorforge.erasures AS e
    WHERE e.stage <> 'done' AND e.lease_expires_at < clock_timestamp()
    ORDER BY e.lease_expires_at LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF claimed_erasure_id IS NULL THEN
        RETURN;
    END IF;
    UPDATE vectorforge.erasures SET lease_expires_at = clock_timestamp() + lease
    WHERE tenant_id = claimed_tenant_id AND id = claimed_erasure_id;
    RETURN NEXT;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.claim_erasure(interval) TO vectorforge_app;
SELECT vectorforge.set_function_owner('vectorforge.claim_erasure(interval)', 'vectorforge_dispatcher');

-- Empty queries and answers older than the retention, across tenants; their rows stay. A bounded number in one call.
-- Also delete tombstones that no message can refer to any more: SQS retains one for 14 days, a dead-letter queue as
-- long again.
CREATE POLICY dispatcher ON vectorforge.tombstones TO vectorforge_dispatcher USING (true);
GRANT SELECT (tenant_id, erased_id, erased_at), DELETE ON vectorforge.tombstones TO vectorforge_dispatcher;
CREATE FUNCTION vectorforge.erase_old_log_texts(retention interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    texts bigint;
    tombstones bigint;
BEGIN
    IF retention IS NULL OR retention < interval '1 day' THEN
        RAISE EXCEPTION 'retention must be at least 1 day' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE vectorforge.query_logs SET query_text = '', generated_response = '', text_erased_at = clock_timestamp()
    WHERE (tenant_id, id) IN (
        SELECT old.tenant_id, old.id FROM vectorforge.query_logs AS old
        WHERE old.created_at < clock_timestamp() - retention AND old.text_erased_at IS NULL LIMIT 1000
    );
    GET DIAGNOSTICS texts = ROW_COUNT;
    DELETE FROM vectorforge.tombstones WHERE (tenant_id, erased_id) IN (
        SELECT old.tenant_id, old.erased_id FROM vectorforge.tombstones AS old
        WHERE old.erased_at < clock_timestamp() - interval '60 days' LIMIT 5000
    );
    GET DIAGNOSTICS tombstones = ROW_COUNT;
    RETURN texts + tombstones;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.erase_old_log_texts(interval) TO vectorforge_app;
SELECT vectorforge.set_function_owner('vectorforge.erase_old_log_texts(interval)', 'vectorforge_dispatcher');
