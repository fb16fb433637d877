-- Streamed answers, stored so that a client that was disconnected can resume at any instance, and so that a request
-- with the same Idempotency-Key gets the same answer.
SET LOCAL ROLE vectorforge_migrator;

CREATE TABLE vectorforge.answer_streams (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    -- id in the query log
    query_id uuid NOT NULL,
    -- "ended": the last event is stored; "overflowed": too long to store; "lost": its writer has died
    state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'ended', 'overflowed', 'lost')),
    -- of the last stored event
    last_id int NOT NULL DEFAULT 0 CHECK (last_id >= 0),
    stop_requested boolean NOT NULL DEFAULT false,
    -- false: its events cannot be requested by the query's id
    is_resumable boolean NOT NULL DEFAULT true,
    -- sha256 of the Idempotency-Key; NULL: there was none, or the answer is not to be repeated
    idempotency_key bytea CHECK (octet_length(idempotency_key) = 32),
    -- sha256 of the request that the key came with
    fingerprint bytea CHECK (octet_length(fingerprint) = 32),
    -- of the streamed response; NULL: the response is JSON
    response_headers jsonb CHECK (jsonb_typeof(response_headers) = 'object'),
    -- of the batches: a tenant's answers with a key have a limit in bytes
    stored_bytes bigint NOT NULL DEFAULT 0 CHECK (stored_bytes >= 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    -- last write or heartbeat of the writer
    written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- last read by a client that resumed; NULL: none did
    read_at timestamptz,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, query_id)
) WITH (fillfactor = 50);
CREATE INDEX answer_streams_by_expiry ON vectorforge.answer_streams (expires_at);
-- one answer for each key of a tenant
CREATE UNIQUE INDEX answer_streams_by_key ON vectorforge.answer_streams (tenant_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
-- a tenant's keys by age, since their number is limited
CREATE INDEX answer_streams_with_key ON vectorforge.answer_streams (tenant_id, created_at)
    WHERE idempotency_key IS NOT NULL;

-- The events of a stream, several in a row: one insert for each would be too slow.
CREATE TABLE vectorforge.answer_stream_batches (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    query_id uuid NOT NULL,
    first_id int NOT NULL CHECK (first_id >= 1),
    last_id int NOT NULL,
    -- server-sent events as sent to the client, each with its blank line
    events bytea NOT NULL,
    PRIMARY KEY (tenant_id, query_id, first_id),
    CHECK (last_id >= first_id),
    FOREIGN KEY (tenant_id, query_id)
        REFERENCES vectorforge.answer_streams (tenant_id, query_id) ON DELETE CASCADE
);

SELECT vectorforge.enable_tenant_isolation('answer_streams'),
    vectorforge.enable_tenant_isolation('answer_stream_batches');
GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.answer_streams, vectorforge.answer_stream_batches
    TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.answer_streams, vectorforge.answer_stream_batches TO vectorforge_eraser;

-- Delete expired streams with their batches, across tenants; a bounded number in one call.
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
SELECT vectorforge.set_function_owner('vectorforge.delete_expired_streams()', 'vectorforge_dispatcher');
