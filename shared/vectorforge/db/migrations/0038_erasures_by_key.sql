-- Look-ups of an erasure by the keys of rows. If the statistics know no rows of a tenant, the planner expects one: it
-- joined all messages of the tenant with all conversations, and all its tombstones with the chunks of each query.
SET LOCAL ROLE vectorforge_migrator;

-- As in 0017 and 0034. OFFSET keeps each look-up a step of its own.
CREATE OR REPLACE FUNCTION vectorforge.erased_log(entry vectorforge.query_logs, OUT logs text, OUT erasure_id uuid)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
BEGIN
    SELECT e.logs, e.id INTO logs, erasure_id FROM vectorforge.erasures AS e
    WHERE e.tenant_id = entry.tenant_id AND e.kind = 'collection' AND e.collection_id = entry.collection_id
    LIMIT 1;
    IF FOUND
            OR NOT EXISTS (SELECT FROM vectorforge.tombstones AS c WHERE c.tenant_id = entry.tenant_id) THEN
        RETURN;
    END IF;
    SELECT e.logs, e.id INTO logs, erasure_id
    FROM (
        SELECT given::uuid AS id
        FROM jsonb_array_elements_text(entry.retrieved_chunk_ids || entry.used_chunk_ids) AS given OFFSET 0
    ) AS named CROSS JOIN LATERAL (
        SELECT t.erasure_id AS id FROM vectorforge.tombstones AS t
        WHERE t.tenant_id = entry.tenant_id AND t.erased_id = named.id OFFSET 0
    ) AS cause CROSS JOIN LATERAL (
        SELECT one.logs, one.id FROM vectorforge.erasures AS one
        WHERE one.tenant_id = entry.tenant_id AND one.id = cause.id OFFSET 0
    ) AS e
    ORDER BY e.logs LIMIT 1;  -- 'rows' sorts first
END
$$;

-- As in 0017, but each query by its key.
CREATE OR REPLACE FUNCTION vectorforge.erase_messages(tenant text, queries uuid[]) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    before constant text := current_setting('vectorforge.tenant', true);
    query uuid;
    conversation uuid;
    changed bigint;
    messages bigint := 0;
BEGIN
    PERFORM set_config('vectorforge.tenant', tenant, true);
    FOREACH query IN ARRAY queries LOOP
        FOR conversation IN
            SELECT m.conversation_id FROM vectorforge.conversation_messages AS m
            WHERE m.tenant_id = tenant AND m.query_id = query AND m.position = 0
        LOOP
            UPDATE vectorforge.conversations AS c SET title = '' WHERE c.tenant_id = tenant AND c.id = conversation;
        END LOOP;
        UPDATE vectorforge.conversation_messages AS m SET content = '[erased]'
        WHERE m.tenant_id = tenant AND m.query_id = query AND m.content <> '[erased]';
        GET DIAGNOSTICS changed = ROW_COUNT;
        messages := messages + changed;
        DELETE FROM vectorforge.answer_streams AS s WHERE s.tenant_id = tenant AND s.query_id = query;
    END LOOP;
    PERFORM set_config('vectorforge.tenant', coalesce(before, ''), true);
    RETURN messages;
END
$$;

-- Empty the texts of logged queries; returns their number.
CREATE FUNCTION vectorforge.erase_log_texts(tenant text, queries uuid[]) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    query uuid;
    changed bigint;
    texts bigint := 0;
BEGIN
    FOREACH query IN ARRAY queries LOOP
        UPDATE vectorforge.query_logs AS l
        SET query_text = '', generated_response = '', text_erased_at = clock_timestamp()
        WHERE l.tenant_id = tenant AND l.id = query AND l.text_erased_at IS NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
        texts := texts + changed;
    END LOOP;
    RETURN texts;
END
$$;

DO $$
BEGIN
    EXECUTE replace(replace(
        pg_get_functiondef('vectorforge.erase_logs(vectorforge.erasures, int)'::regprocedure),
        $before$UPDATE vectorforge.query_logs AS l
        SET query_text = '', generated_response = '', text_erased_at = clock_timestamp()
        WHERE l.tenant_id = erasure.tenant_id AND l.id = ANY (concerned) AND l.text_erased_at IS NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;$before$,
        'changed := vectorforge.erase_log_texts(erasure.tenant_id, concerned);'
    ), 'l.created_at > clock_timestamp()', 'l.created_at > statement_timestamp()');  -- as in 0031
    -- OFFSET keeps the look-up from becoming a join.
    EXECUTE replace(
        pg_get_functiondef('vectorforge.erase_unknown_answers(vectorforge.erasures, int)'::regprocedure),
        'AND l.id = n.query_id', 'AND l.id = n.query_id OFFSET 0'
    );
END
$$;
