-- API keys. Only the SHA-256 of a key is stored, from which its 256 random bits cannot be recovered.
SET LOCAL ROLE vectorforge_migrator;

CREATE TABLE vectorforge.api_keys (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    -- public: it is part of the key, and identifies it in logs
    id text NOT NULL CHECK (id ~ '^[0-9a-f]{16}$'),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 100),
    scope text NOT NULL CHECK (scope IN ('read', 'write', 'admin')),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    -- the key that replaces it
    successor text,
    -- in UTC; a date, so that a key in use is written once a day
    last_used_on date,
    PRIMARY KEY (tenant_id, id)
);
CREATE UNIQUE INDEX api_keys_by_digest ON vectorforge.api_keys (digest);
SELECT vectorforge.enable_tenant_isolation('api_keys');
GRANT INSERT, DELETE ON vectorforge.api_keys TO vectorforge_app;
GRANT SELECT (tenant_id, id, name, scope, created_at, expires_at, revoked_at, successor, last_used_on),
    UPDATE (expires_at, revoked_at, successor) ON vectorforge.api_keys TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.api_keys TO vectorforge_eraser;

-- Return a key by its digest, before the tenant is known: past the tenant's policy, and only to callers that have the
-- key. No row for a key that is unknown, revoked or expired. "seconds_left": NULL if it does not expire.
CREATE POLICY dispatcher ON vectorforge.api_keys TO vectorforge_dispatcher USING (true);
GRANT SELECT (tenant_id, id, digest, scope, expires_at, revoked_at, last_used_on), UPDATE (last_used_on)
    ON vectorforge.api_keys TO vectorforge_dispatcher;
CREATE FUNCTION vectorforge.find_api_key(wanted bytea)
RETURNS TABLE (tenant_id text, id text, digest bytea, scope text, seconds_left double precision)
LANGUAGE sql VOLATILE SECURITY DEFINER ROWS 1
SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE vectorforge.api_keys AS k SET last_used_on = (clock_timestamp() AT TIME ZONE 'UTC')::date
    WHERE k.digest = wanted AND k.revoked_at IS NULL AND coalesce(k.expires_at > clock_timestamp(), true)
        AND k.last_used_on IS DISTINCT FROM (clock_timestamp() AT TIME ZONE 'UTC')::date;
    SELECT k.tenant_id, k.id, k.digest, k.scope, extract(epoch FROM k.expires_at - clock_timestamp())::double precision
    FROM vectorforge.api_keys AS k
    WHERE k.digest = wanted AND k.revoked_at IS NULL AND coalesce(k.expires_at > clock_timestamp(), true)
$$;
GRANT EXECUTE ON FUNCTION vectorforge.find_api_key(bytea) TO vectorforge_app;
SELECT vectorforge.set_function_owner('vectorforge.find_api_key(bytea)', 'vectorforge_dispatcher');

-- Raise VF002 unless all cached keys are still valid, in the statement that enters their tenant. "keys": distinct ids
-- of the entered tenant's keys. Without a tenant there are none.
CREATE FUNCTION vectorforge.check_keys(keys text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF cardinality(keys) > (
        SELECT count(*) FROM vectorforge.api_keys AS k
        WHERE k.tenant_id = current_setting('vectorforge.tenant', true) AND k.id = ANY (keys)
            AND k.revoked_at IS NULL AND coalesce(k.expires_at > clock_timestamp(), true)
    ) THEN
        RAISE EXCEPTION 'a key is revoked or expired' USING ERRCODE = 'VF002';
    END IF;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.check_keys(text[]) TO vectorforge_app;
