-- Read replicas that answer searches: docs/operate/readers.md.
SET LOCAL ROLE vectorforge_migrator;

-- enter_tenant() for a search on a read replica. Read-only also where the replica's host leads to the writer, as that of an
-- Aurora cluster without readers does. In a function, since RDS Proxy pins a connection that sends SET or set_config.
CREATE FUNCTION vectorforge.enter_reader(tenant text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM vectorforge.enter_tenant(tenant);
    PERFORM set_config('transaction_read_only', 'on', true);
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.enter_reader(text) TO vectorforge_app;
