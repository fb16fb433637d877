-- Whether keys that a process remembers are still good, asked in the statement that enters their tenant.
SET LOCAL ROLE vectorforge_migrator;

-- "keys": ids of the entered tenant's keys, each once. Without a tenant there are none, and it refuses.
CREATE FUNCTION vectorforge.check_keys(keys text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF cardinality(keys) > (
        SELECT count(*) FROM vectorforge.api_keys AS k
        WHERE k.tenant_id = current_setting('vectorforge.tenant', true) AND k.id = ANY (keys)
            AND k.revoked_at IS NULL AND coalesce(k.expires_at > clock_timestamp(), true)
    ) THEN
        RAISE EXCEPTION 'a key is revoked or over' USING ERRCODE = 'VF002';
    END IF;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.check_keys(text[]) TO vectorforge_app;
