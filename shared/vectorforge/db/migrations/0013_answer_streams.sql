-- Answers while they are streamed, so that a reader whose connection was cut can go on at any instance.
SET LOCAL ROLE vectorforge_migrator;

CREATE TABLE vectorforge.answer_streams (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    -- of the query log
    query_id uuid NOT NULL,
    -- "ended": the last event is stored; "overflowed": too long to be kept; "lost": its writer is gone
    state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'ended', 'overflowed', 'lost')),
    -- of the last event stored
    last_id int NOT NULL DEFAULT 0 CHECK (last_id >= 0),
    stop_requested boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- when the writer was last heard of
    written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- when somebody last came back to read; null: nobody did
    read_at timestamptz,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, query_id)
) WITH (fillfactor = 50);
CREATE INDEX answer_streams_by_expiry ON vectorforge.answer_streams (expires_at);

CREATE TABLE vectorforge.answer_stream_batches (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    query_id uuid NOT NULL,
    first_id int NOT NULL CHECK (first_id >= 1),
    last_id int NOT NULL,
    -- the server-sent events as they went over the wire, each with its blank line
    events bytea NOT NULL,
    PRIMARY KEY (tenant_id, query_id, first_id),
    CHECK (last_id >= first_id),
    FOREIGN KEY (tenant_id, query_id)
        REFERENCES vectorforge.answer_streams (tenant_id, query_id) ON DELETE CASCADE
);

ALTER TABLE vectorforge.answer_streams ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.answer_streams FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vectorforge.answer_streams
    USING (tenant_id = NULLIF(current_setting('vectorforge.tenant', true), ''));
ALTER TABLE vectorforge.answer_stream_batches ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.answer_stream_batches FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vectorforge.answer_stream_batches
    USING (tenant_id = NULLIF(current_setting('vectorforge.tenant', true), ''));
GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.answer_streams, vectorforge.answer_stream_batches
    TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.answer_streams, vectorforge.answer_stream_batches TO vectorforge_eraser;

-- What has expired goes, of all tenants; a bounded number a call. Batches go with their streams.
CREATE POLICY dispatcher ON vectorforge.answer_streams TO vectorforge_dispatcher USING (true);
GRANT SELECT (tenant_id, query_id, expires_at), DELETE ON vectorforge.answer_streams TO vectorforge_dispatcher;
CREATE FUNCTION vectorforge.delete_expired_streams() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    deleted bigint;
BEGIN
    DELETE FROM vectorforge.answer_streams WHERE (tenant_id, query_id) IN (
        SELECT old.tenant_id, old.query_id FROM vectorforge.answer_streams AS old
        WHERE old.expires_at < clock_timestamp() LIMIT 1000
    );
    GET DIAGNOSTICS deleted = ROW_COUNT;
    RETURN deleted;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.delete_expired_streams() TO vectorforge_app;
GRANT CREATE ON SCHEMA vectorforge TO vectorforge_dispatcher;
ALTER FUNCTION vectorforge.delete_expired_streams() OWNER TO vectorforge_dispatcher;
REVOKE CREATE ON SCHEMA vectorforge FROM vectorforge_dispatcher;
