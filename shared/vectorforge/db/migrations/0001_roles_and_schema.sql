-- Roles, schema and the record of applied migrations. Runs as the connecting user, which needs CREATEROLE,
-- CREATE on the database and the right to create the extension (a superuser, or rds_superuser on RDS).
--
-- Roles belong to the whole cluster: another database may have made them already, and another migrator may
-- be making them now. Only what is missing is made, so nothing existing is altered.
DO $$
DECLARE
    role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY[
        'vectorforge_migrator', 'vectorforge_app', 'vectorforge_log_writer', 'vectorforge_eraser',
        'vectorforge_dispatcher'
    ] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = role_name) THEN
            BEGIN
                EXECUTE format(
                    'CREATE ROLE %I %s', role_name,
                    CASE WHEN role_name IN ('vectorforge_migrator', 'vectorforge_dispatcher')
                         THEN 'NOLOGIN' ELSE 'LOGIN' END
                );
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;  -- a migrator of another database was faster
            END;
        END IF;
    END LOOP;

    -- To make objects as these roles, one must be able to become them (a superuser is; elsewhere the maker of
    -- a role may only administer it until he grants it to himself).
    FOREACH role_name IN ARRAY ARRAY['vectorforge_migrator', 'vectorforge_dispatcher'] LOOP
        IF NOT pg_catalog.pg_has_role(current_user, role_name, 'SET') THEN
            BEGIN
                EXECUTE format('GRANT %I TO CURRENT_USER', role_name);
            EXCEPTION WHEN unique_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
    IF NOT pg_catalog.pg_has_role('vectorforge_migrator', 'vectorforge_dispatcher', 'SET') THEN
        BEGIN
            GRANT vectorforge_dispatcher TO vectorforge_migrator;
        EXCEPTION WHEN unique_violation THEN
            NULL;
        END;
    END IF;
END
$$;

-- In "public", which every role's search_path holds: operators such as <=> are found without a setting.
CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public;

CREATE SCHEMA vectorforge AUTHORIZATION vectorforge_migrator;

SET LOCAL ROLE vectorforge_migrator;

GRANT USAGE ON SCHEMA vectorforge
    TO vectorforge_app, vectorforge_log_writer, vectorforge_eraser, vectorforge_dispatcher;
ALTER DEFAULT PRIVILEGES IN SCHEMA vectorforge REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;

CREATE TABLE vectorforge.schema_migrations (
    version int PRIMARY KEY,
    name text NOT NULL,
    sha256 bytea NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE vectorforge.schema_migrations ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.schema_migrations FORCE ROW LEVEL SECURITY;
CREATE POLICY schema_migrations_read ON vectorforge.schema_migrations FOR SELECT USING (true);
CREATE POLICY schema_migrations_record ON vectorforge.schema_migrations FOR INSERT TO vectorforge_migrator
    WITH CHECK (true);
GRANT SELECT ON vectorforge.schema_migrations
    TO vectorforge_app, vectorforge_log_writer, vectorforge_eraser;

-- The tenant lives in a setting of the current transaction. A statement that sets it would pin a session of
-- RDS Proxy (https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-proxy-pinning.html); a function does not.
CREATE FUNCTION vectorforge.enter_tenant(tenant text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF tenant IS NULL OR tenant = '' THEN
        RAISE EXCEPTION 'a tenant is required' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM set_config('vectorforge.tenant', tenant, true);
    -- A client that is frozen or cut off in the middle must not hold its locks, or a backend, for long.
    PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);
    PERFORM set_config('statement_timeout', '60s', true);
END
$$;

-- For a search through an HNSW index.
CREATE FUNCTION vectorforge.enter_search(tenant text, ef_search int) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM vectorforge.enter_tenant(tenant);
    -- The vector library defines its settings when it is loaded; before that, an ordinary role may not set them.
    PERFORM '[1]'::public.vector;
    PERFORM set_config('hnsw.ef_search', greatest(1, least(ef_search, 1000))::text, true);
    -- strict_order: an index scan goes on until enough rows pass the filters, and keeps them in order
    PERFORM set_config('hnsw.iterative_scan', 'strict_order', true);
END
$$;

GRANT EXECUTE ON FUNCTION vectorforge.enter_tenant(text)
    TO vectorforge_app, vectorforge_log_writer, vectorforge_eraser;
GRANT EXECUTE ON FUNCTION vectorforge.enter_search(text, int) TO vectorforge_app;
