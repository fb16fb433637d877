-- Without JIT compilation in a tenant's transaction: it begins at an estimated cost of 100,000, which searches of more
-- than about 150,000 chunks exceed, and is for long-running queries (https://www.postgresql.org/docs/18/jit-reason.html).
CREATE OR REPLACE FUNCTION vectorforge.enter_tenant(tenant text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF tenant IS NULL OR tenant = '' THEN
        RAISE EXCEPTION 'a tenant is required' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM set_config('vectorforge.tenant', tenant, true);
    PERFORM set_config('jit', 'off', true);
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
