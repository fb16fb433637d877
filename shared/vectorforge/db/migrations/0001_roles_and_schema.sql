-- Roles, the schema and the record of applied migrations.
-- Runs as the connecting user, which needs CREATEROLE, CREATE on the database and the right to create the
-- extension (a superuser, or rds_superuser on RDS). Every later file runs as vectorforge_migrator.
--
-- vectorforge_migrator    owns the schema (NOLOGIN)
-- vectorforge_app         the API and its workers
-- vectorforge_log_writer  inserts query logs
-- vectorforge_eraser      reads and deletes
-- vectorforge_dispatcher  owns the SECURITY DEFINER functions that look across tenants (NOLOGIN)
-- vectorforge_log_keeper  owns write_query_logs() (NOLOGIN)
--
-- Roles belong to the cluster: another database may have created them, and another migrator may be creating
-- them now. Only missing ones are created, so that no existing role is altered.
DO $$
DECLARE
    role_name text;
    member text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY[
        'vectorforge_migrator', 'vectorforge_app', 'vectorforge_log_writer', 'vectorforge_eraser',
        'vectorforge_dispatcher', 'vectorforge_log_keeper'
    ] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = role_name) THEN
            BEGIN
                EXECUTE format(
                    'CREATE ROLE %I %s', role_name,
                    CASE WHEN role_name IN ('vectorforge_app', 'vectorforge_log_writer', 'vectorforge_eraser')
                         THEN 'LOGIN' ELSE 'NOLOGIN' END
                );
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;  -- created by the migrator of another database
            END;
        END IF;
    END LOOP;

    -- Creating objects as another role, or for it, requires SET on it. A superuser has it; any other creator
    -- of a role may only administer it until it grants the role to itself.
    FOR role_name, member IN VALUES
        ('vectorforge_migrator', current_user::text),
        ('vectorforge_dispatcher', current_user::text),
        ('vectorforge_log_keeper', current_user::text),
        ('vectorforge_dispatcher', 'vectorforge_migrator'),
        ('vectorforge_log_keeper', 'vectorforge_migrator')
    LOOP
        IF NOT pg_catalog.pg_has_role(member, role_name, 'SET') THEN
            BEGIN
                EXECUTE format('GRANT %I TO %I', role_name, member);
            EXCEPTION WHEN unique_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
END
$$;

-- In "public", which is in every role's search_path: operators such as <=> resolve without a setting.
CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public;

CREATE SCHEMA vectorforge AUTHORIZATION vectorforge_migrator;

SET LOCAL ROLE vectorforge_migrator;

GRANT USAGE ON SCHEMA vectorforge
    TO vectorforge_app, vectorforge_log_writer, vectorforge_eraser, vectorforge_dispatcher, vectorforge_log_keeper;
ALTER DEFAULT PRIVILEGES IN SCHEMA vectorforge REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;

-- One row for each applied file. The migrator compares the checksum; the app compares the version.
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

-- For migrations and for functions that create partitions: restrict a table with a tenant_id to the rows of the
-- tenant that the transaction has entered. Without a tenant there are no rows.
CREATE FUNCTION vectorforge.enable_tenant_isolation(table_name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('ALTER TABLE vectorforge.%I ENABLE ROW LEVEL SECURITY', table_name);
    EXECUTE format('ALTER TABLE vectorforge.%I FORCE ROW LEVEL SECURITY', table_name);
    EXECUTE format(
        'CREATE POLICY tenant ON vectorforge.%I '
        'USING (tenant_id = NULLIF(current_setting(''vectorforge.tenant'', true), ''''))', table_name
    );
END
$$;

-- For migrations: give a SECURITY DEFINER function to the role whose rights it needs. The role requires CREATE on the
-- schema for that moment only.
CREATE FUNCTION vectorforge.set_function_owner(signature regprocedure, role_name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('GRANT CREATE ON SCHEMA vectorforge TO %I', role_name);
    EXECUTE format('ALTER FUNCTION %s OWNER TO %I', signature, role_name);
    EXECUTE format('REVOKE CREATE ON SCHEMA vectorforge FROM %I', role_name);
END
$$;
