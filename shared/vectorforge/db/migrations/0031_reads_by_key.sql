-- Statements that read a tenant's whole table, or all tenants', for the few rows they want.
SET LOCAL ROLE vectorforge_migrator;

-- An index cannot be searched for a volatile value, as clock_timestamp() is; each call is a statement of its own.
DO $$
DECLARE
    signature regprocedure;
BEGIN
    FOREACH signature IN ARRAY ARRAY[
        'vectorforge.delete_expired_caches(interval)', 'vectorforge.delete_expired_streams()',
        'vectorforge.delete_expired_files()', 'vectorforge.erase_old_log_texts(interval)',
        'vectorforge.tenant_with_removals()'
    ]::regprocedure[] LOOP
        EXECUTE replace(
            replace(pg_get_functiondef(signature), '< clock_timestamp()', '< statement_timestamp()'),
            '<= clock_timestamp()', '<= statement_timestamp()'
        );
    END LOOP;
    -- Nor for a position behind an OR in a plan for any values: each page of the log was read from its beginning.
    EXECUTE replace(
        pg_get_functiondef('vectorforge.erase_logs(vectorforge.erasures, int)'::regprocedure),
        'erasure.position_time IS NULL OR (l.created_at, l.id) > (erasure.position_time, erasure.position_id)',
        '(l.created_at, l.id) > (coalesce(erasure.position_time, ''-infinity''), '
        'coalesce(erasure.position_id, ''00000000-0000-0000-0000-000000000000''))'
    );
END
$$;

-- As in 0011, but for each tenant: the indexes on the time begin with the tenant. A job ends after it was created.
CREATE OR REPLACE FUNCTION vectorforge.delete_old_logs(retention interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    last constant timestamptz := statement_timestamp() - retention;
    tenant text;
    deleted bigint;
    queries bigint := 0;
    jobs bigint := 0;
BEGIN
    IF retention IS NULL OR retention < interval '1 day' THEN
        RAISE EXCEPTION 'retention must be at least 1 day' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT min(l.tenant_id) INTO tenant FROM vectorforge.query_logs AS l;
    WHILE tenant IS NOT NULL AND queries < 5000 LOOP
        DELETE FROM vectorforge.query_logs AS l WHERE l.tenant_id = tenant AND l.id = ANY (ARRAY(
            SELECT old.id FROM vectorforge.query_logs AS old
            WHERE old.tenant_id = tenant AND old.created_at < last ORDER BY old.created_at LIMIT 5000 - queries
        ));
        GET DIAGNOSTICS deleted = ROW_COUNT;
        queries := queries + deleted;
        SELECT min(l.tenant_id) INTO tenant FROM vectorforge.query_logs AS l WHERE l.tenant_id > tenant;
    END LOOP;
    SELECT min(j.tenant_id) INTO tenant FROM vectorforge.ingestion_jobs AS j;
    WHILE tenant IS NOT NULL AND jobs < 500 LOOP
        DELETE FROM vectorforge.ingestion_jobs AS j WHERE j.tenant_id = tenant AND j.id = ANY (ARRAY(
            SELECT old.id FROM vectorforge.ingestion_jobs AS old
            WHERE old.tenant_id = tenant AND old.created_at < last AND old.finished_at < last
            ORDER BY old.created_at LIMIT 500 - jobs
        ));
        GET DIAGNOSTICS deleted = ROW_COUNT;
        jobs := jobs + deleted;
        SELECT min(j.tenant_id) INTO tenant FROM vectorforge.ingestion_jobs AS j WHERE j.tenant_id > tenant;
    END LOOP;
    RETURN queries + jobs;
END
$$;

-- Documents of a file in a collection of the entered tenant. Row-level security keeps an ordinary role from using the
-- index documents_by_parent, since source_key() is not leakproof: see filter_candidates() in 0004.
CREATE POLICY dispatcher ON vectorforge.documents FOR SELECT TO vectorforge_dispatcher USING (true);
GRANT SELECT (tenant_id, id, collection_id, parent_source) ON vectorforge.documents TO vectorforge_dispatcher;
CREATE FUNCTION vectorforge.documents_of_parent(collection uuid, parent text) RETURNS SETOF uuid
LANGUAGE sql STABLE SECURITY DEFINER ROWS 100
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT d.id FROM vectorforge.documents AS d
    WHERE d.tenant_id = nullif(current_setting('vectorforge.tenant', true), '') AND d.collection_id = collection
        AND d.parent_source IS NOT NULL AND vectorforge.source_key(d.parent_source) = vectorforge.source_key(parent)
$$;
GRANT EXECUTE ON FUNCTION vectorforge.documents_of_parent(uuid, text) TO vectorforge_app;
GRANT EXECUTE ON FUNCTION vectorforge.source_key(text) TO vectorforge_dispatcher;
SELECT vectorforge.set_function_owner('vectorforge.documents_of_parent(uuid, text)', 'vectorforge_dispatcher');

-- As in 0018, but one document is found by its id, and a profile's are read without the others.
CREATE OR REPLACE FUNCTION vectorforge.documents_to_erase(erasure vectorforge.erasures, most int) RETURNS uuid[]
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT array_agg(first.id) FROM (
        SELECT candidate.id, sum(candidate.chunk_count) OVER (ORDER BY candidate.id) - candidate.chunk_count AS before
        FROM (
            SELECT d.id, d.chunk_count FROM vectorforge.documents AS d
            WHERE erasure.kind = 'collection' AND d.tenant_id = erasure.tenant_id
                AND d.collection_id = erasure.collection_id
            UNION ALL
            SELECT d.id, d.chunk_count FROM vectorforge.documents AS d
            WHERE erasure.kind <> 'collection' AND d.tenant_id = erasure.tenant_id
                AND d.collection_id = erasure.collection_id AND d.id = ANY (CASE erasure.kind
                    WHEN 'document' THEN ARRAY[erasure.document_id]
                    ELSE ARRAY(
                        SELECT p.document_id FROM vectorforge.profile_documents AS p
                        WHERE p.tenant_id = erasure.tenant_id AND p.collection_id = erasure.collection_id
                            AND p.profile_id = erasure.profile_id
                    )
                END)
            ORDER BY 1 LIMIT 200
        ) AS candidate
    ) AS first WHERE first.before < most
$$;
