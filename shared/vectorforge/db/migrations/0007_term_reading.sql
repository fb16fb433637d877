-- Indexing of chunks that have no terms yet, or terms of another language: in steps, by workers and by `vectorforge
-- migrate`.
SET LOCAL ROLE vectorforge_migrator;

-- Index at most "most" chunks of a collection of the entered tenant. Documents are processed in the order of their ids,
-- which the cursor stores, so that any worker continues. A document that is being written is not waited for: with other
-- documents locked, that could deadlock.
CREATE FUNCTION vectorforge.read_terms(collection uuid, most int, OUT documents int, OUT passages int, OUT state text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    tenant constant text := NULLIF(current_setting('vectorforge.tenant', true), '');
    target record;
    following uuid[];
    locked uuid[];
    unread uuid[];
    last_begun uuid;
BEGIN
    IF most IS NULL OR most NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'most must be between 1 and 10000' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    documents := 0;
    passages := 0;
    state := 'complete';
    SELECT c.language, c.terms_cursor INTO target FROM vectorforge.collections AS c
    WHERE c.tenant_id = tenant AND c.id = collection AND NOT c.terms_complete;
    IF NOT FOUND THEN
        RETURN;
    END IF;

    following := ARRAY(
        SELECT d.id FROM vectorforge.documents AS d
        WHERE d.tenant_id = tenant AND d.collection_id = collection
            AND d.id > coalesce(target.terms_cursor, '00000000-0000-0000-0000-000000000000')
        ORDER BY d.id LIMIT 100
    );
    locked := ARRAY(
        SELECT d.id FROM vectorforge.documents AS d
        WHERE d.tenant_id = tenant AND d.id = ANY (following) ORDER BY d.id FOR NO KEY UPDATE SKIP LOCKED
    );
    -- up to the first one that is being written, or has just been deleted
    locked := ARRAY(
        SELECT d.id FROM unnest(following) WITH ORDINALITY AS d (id, place)
        WHERE d.place < coalesce((
            SELECT min(busy.place) FROM unnest(following) WITH ORDINALITY AS busy (id, place)
            WHERE busy.id <> ALL (locked)
        ), 101) ORDER BY d.place
    );
    IF locked = '{}' AND following <> '{}' THEN
        state := 'busy';
        RETURN;
    END IF;

    SELECT array_agg(f.id), (array_agg(f.document_id ORDER BY f.document_id DESC))[1] INTO unread, last_begun FROM (
        SELECT f.id, f.document_id FROM vectorforge.chunks AS f
        LEFT JOIN vectorforge.chunk_terms AS t
            ON t.tenant_id = f.tenant_id AND t.chunk_id = f.id AND t.language = target.language
        WHERE f.tenant_id = tenant AND f.collection_id = collection AND f.document_id = ANY (locked)
            AND f.to_version IS NULL AND t.chunk_id IS NULL
        ORDER BY f.document_id LIMIT most
    ) AS f;
    passages := coalesce(cardinality(unread), 0);
    IF passages > 0 THEN
        DELETE FROM vectorforge.chunk_terms WHERE tenant_id = tenant AND chunk_id = ANY (unread);
        PERFORM vectorforge.add_terms(tenant, collection, unread);
        -- before the collection is locked, as at every commit
        PERFORM vectorforge.settle_changes();
    END IF;
    -- the last document may have more chunks
    IF passages = most THEN
        locked := ARRAY(SELECT d.id FROM unnest(locked) AS d (id) WHERE d.id < last_begun ORDER BY d.id);
    END IF;

    documents := cardinality(locked);
    state := CASE WHEN following = '{}' THEN 'complete' ELSE 'more' END;
    -- unless the language has changed meanwhile: then indexing starts over
    UPDATE vectorforge.collections AS c
    SET terms_cursor = CASE WHEN following <> '{}' THEN coalesce(locked[documents], c.terms_cursor) END,
        terms_complete = following = '{}',
        data_version = c.data_version + (following = '{}')::int
    WHERE c.tenant_id = tenant AND c.id = collection AND c.language = target.language AND NOT c.terms_complete
        AND c.terms_cursor IS NOT DISTINCT FROM target.terms_cursor;
    IF NOT FOUND THEN
        state := 'more';
    END IF;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.read_terms(uuid, int) TO vectorforge_app;

-- Collections with chunks to index, across tenants, and nothing else of them.
CREATE FUNCTION vectorforge.unread_collections() RETURNS TABLE (tenant_id text, id uuid, document_count bigint)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT c.tenant_id, c.id, c.document_count FROM vectorforge.collections AS c
    WHERE NOT c.terms_complete ORDER BY c.tenant_id, c.id LIMIT 1000
$$;
GRANT EXECUTE ON FUNCTION vectorforge.unread_collections() TO vectorforge_app;
SELECT vectorforge.set_function_owner('vectorforge.unread_collections()', 'vectorforge_dispatcher');
