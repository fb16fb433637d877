-- API keys. Of a key only its SHA-256 is stored, from which nobody finds 256 random bits.
SET LOCAL ROLE vectorforge_migrator;

CREATE TABLE vectorforge.api_keys (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    -- public: it is part of the key, and names it in logs
    id text NOT NULL CHECK (id ~ '^[0-9a-f]{16}$'),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 100),
    scope text NOT NULL CHECK (scope IN ('read', 'write', 'admin')),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    -- the key that takes its place
    successor text,
    -- UTC; the day only, so that a key in use is written once a day
    last_used_on date,
    PRIMARY KEY (tenant_id, id)
);
CREATE UNIQUE INDEX api_keys_by_digest ON vectorforge.api_keys (digest);

ALTER TABLE vectorforge.api_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.api_keys FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vectorforge.api_keys
    USING (tenant_id = NULLIF(current_setting('vectorforge.tenant', true), ''));
GRANT INSERT, DELETE ON vectorforge.api_keys TO vectorforge_app;
GRANT SELECT (tenant_id, id, name, scope, created_at, expires_at, revoked_at, successor, last_used_on),
    UPDATE (expires_at, revoked_at, successor) ON vectorforge.api_keys TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.api_keys TO vectorforge_eraser;

-- Whose key this is: asked before the tenant is known, so past its policy, and answered only to who has the key. Of a key
-- that is unknown, revoked or over there is no row. "seconds_left": NULL when it does not end.
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
GRANT CREATE ON SCHEMA vectorforge TO vectorforge_dispatcher;
ALTER FUNCTION vectorforge.find_api_key(bytea) OWNER TO vectorforge_dispatcher;
REVOKE CREATE ON SCHEMA vectorforge FROM vectorforge_dispatcher;
