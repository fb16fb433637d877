-- Tenants, and how a transaction enters one.
SET LOCAL ROLE vectorforge_migrator;

-- Settings of a tenant. A tenant without a row, and a column that is NULL, uses the server's default.
CREATE TABLE vectorforge.tenants (
    tenant_id text PRIMARY KEY CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    -- what the query log stores of queries and answers
    log_text text CHECK (log_text IN ('full', 'redacted', 'hash', 'off')),
    requests_per_minute int CHECK (requests_per_minute > 0),
    tokens_per_day bigint CHECK (tokens_per_day > 0),
    cost_per_month_usd numeric(12, 2) CHECK (cost_per_month_usd > 0),
    concurrent_streams int CHECK (concurrent_streams > 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
SELECT vectorforge.enable_tenant_isolation('tenants');
GRANT SELECT, INSERT, UPDATE ON vectorforge.tenants TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.tenants TO vectorforge_eraser;

-- Tenants that are being erased: no transaction may enter them. A table of its own, because every transaction reads it.
CREATE TABLE vectorforge.closed_tenants (
    tenant_id text PRIMARY KEY CHECK (octet_length(tenant_id) BETWEEN 1 AND 128)
);
SELECT vectorforge.enable_tenant_isolation('closed_tenants');
-- for functions that run as the owner: the log writer enters no tenant
CREATE POLICY keeper ON vectorforge.closed_tenants TO vectorforge_migrator USING (true);
GRANT SELECT ON vectorforge.closed_tenants TO vectorforge_app, vectorforge_eraser;
GRANT SELECT (tenant_id) ON vectorforge.closed_tenants TO vectorforge_log_writer;

-- The lock that every transaction of a tenant holds, shared. An erasure closes the tenant and then takes it
-- exclusively: it sees everything that began before, and later transactions are rejected. A transaction-level lock
-- does not pin a session of RDS Proxy.
CREATE FUNCTION vectorforge.tenant_lock(tenant text) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN pg_catalog.hashtextextended('vectorforge.tenant ' || tenant, 0);
GRANT EXECUTE ON FUNCTION vectorforge.tenant_lock(text)
    TO vectorforge_app, vectorforge_log_writer, vectorforge_eraser;

-- The tenant is a setting of the current transaction, which the policies compare. A SET statement would pin a session
-- of RDS Proxy (https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-proxy-pinning.html); a function does not.
CREATE FUNCTION vectorforge.enter_tenant(tenant text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF tenant IS NULL OR tenant = '' THEN
        RAISE EXCEPTION 'a tenant is required' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM set_config('vectorforge.tenant', tenant, true);
    -- A client that is frozen or disconnected must not hold locks, or a backend, for long.
    PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);
    PERFORM set_config('statement_timeout', '60s', true);
    PERFORM pg_advisory_xact_lock_shared(vectorforge.tenant_lock(tenant));
    -- after the lock, in a statement of its own: its snapshot includes what was committed during the wait
    IF EXISTS (SELECT FROM vectorforge.closed_tenants AS c WHERE c.tenant_id = tenant) THEN
        RAISE EXCEPTION 'the tenant is being erased' USING ERRCODE = 'VF001';
    END IF;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.enter_tenant(text)
    TO vectorforge_app, vectorforge_log_writer, vectorforge_eraser;

-- enter_tenant() for a search through an HNSW index.
CREATE FUNCTION vectorforge.enter_search(tenant text, ef_search int) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM vectorforge.enter_tenant(tenant);
    -- The vector library defines its settings when it is loaded; until then an ordinary role may not set them.
    PERFORM '[1]'::public.vector;
    PERFORM set_config('hnsw.ef_search', greatest(1, least(ef_search, 1000))::text, true);
    -- strict_order: an index scan continues until enough rows pass the filters, and returns them in order
    PERFORM set_config('hnsw.iterative_scan', 'strict_order', true);
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.enter_search(text, int) TO vectorforge_app;

-- enter_tenant() for an erasure and for reading its progress: without the lock, and also when the tenant is closed.
CREATE FUNCTION vectorforge.enter_erasure(tenant text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF tenant IS NULL OR tenant = '' THEN
        RAISE EXCEPTION 'a tenant is required' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM set_config('vectorforge.tenant', tenant, true);
    PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);
    PERFORM set_config('statement_timeout', '60s', true);
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.enter_erasure(text) TO vectorforge_app, vectorforge_eraser;
