-- Which chunks a filter may match, and how an HNSW index is asked, both told within the statement of a search.
SET LOCAL ROLE vectorforge_migrator;

-- As enter_search(), for callers that have entered their tenant. Called once, before the scan begins. "tuples": after
-- how many vectors it gives up; NULL: as it is set. A statement that sets it would pin a session of RDS Proxy
-- (https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-proxy-pinning.html); a function does not.
CREATE FUNCTION vectorforge.aim_index_scan(ef_search int, tuples int) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM set_config('hnsw.ef_search', greatest(1, least(ef_search, 1000))::text, true);
    -- The scan goes on until enough rows pass the filters. Where the vectors of others lie close together, its first batch
    -- is theirs, and the vectors wanted come in a later one, though they are nearer: strict_order drops those
    -- (https://github.com/pgvector/pgvector#iterative-index-scans). A search sorts what it gets anyway.
    PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true);
    IF tuples IS NOT NULL THEN
        PERFORM set_config('hnsw.max_scan_tuples', greatest(1, tuples)::text, true);
    END IF;
    RETURN true;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.aim_index_scan(int, int) TO vectorforge_app;

-- What an index on metadata knows of a filter. Row-level security keeps an ordinary role from using such an index: its
-- operators are not "leakproof", so they would be tested after the policy, on every row
-- (https://www.postgresql.org/docs/current/rules-privileges.html). Hence as a role to which the policy shows all rows,
-- and the tenant, who has been entered, stands here. "condition" names the collection as its first key.
-- No other plan is wanted than that index: a plan kept for later calls knows neither condition nor limit. So no other
-- condition is written in a form that an index answers.
CREATE POLICY dispatcher ON vectorforge.chunks FOR SELECT TO vectorforge_dispatcher USING (true);
GRANT SELECT (tenant_id, id, collection_id, metadata, to_version) ON vectorforge.chunks TO vectorforge_dispatcher;
CREATE FUNCTION vectorforge.filter_candidates(condition jsonpath, most bigint)
RETURNS TABLE (id uuid, metadata jsonb)
LANGUAGE sql STABLE SECURITY DEFINER ROWS 100
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_indexscan = off
AS $$
    SELECT c.id, c.metadata FROM vectorforge.chunks AS c
    WHERE c.tenant_id || '' = nullif(current_setting('vectorforge.tenant', true), '') AND coalesce(c.to_version, 0) = 0
        AND jsonb_set('{}', ARRAY[c.collection_id::text], c.metadata) @@ condition
    LIMIT most
$$;
GRANT CREATE ON SCHEMA vectorforge TO vectorforge_dispatcher;
ALTER FUNCTION vectorforge.filter_candidates(jsonpath, bigint) OWNER TO vectorforge_dispatcher;
REVOKE CREATE ON SCHEMA vectorforge FROM vectorforge_dispatcher;
GRANT EXECUTE ON FUNCTION vectorforge.filter_candidates(jsonpath, bigint) TO vectorforge_app;
