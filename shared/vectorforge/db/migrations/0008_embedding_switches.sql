-- A change of a collection's embedding model: vectors of a second model are stored in addition to the current ones.
SET LOCAL ROLE vectorforge_migrator;

-- At most one for each collection. Before the switch it has the new model, afterwards the previous one: switching and
-- rolling back exchange this model and the collection's.
CREATE TABLE vectorforge.embedding_switches (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    collection_id uuid NOT NULL,
    id uuid NOT NULL,
    -- removing: finished or cancelled; the vectors of this model are deleted, then this row
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'switched', 'removing')),
    embedding_provider text NOT NULL,
    embedding_model text NOT NULL,
    dimension int NOT NULL CHECK (dimension BETWEEN 1 AND 16000),
    query_prefix text NOT NULL,
    document_prefix text NOT NULL,
    space text NOT NULL,
    -- true: as far as is known, every chunk has a vector of both models
    complete boolean NOT NULL DEFAULT false,
    -- the document that the backfill has reached
    position uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    leased_until timestamptz,
    failures int NOT NULL DEFAULT 0,
    error_code text,
    error_message text,
    -- result of the last comparison of the two models
    gate jsonb CHECK (jsonb_typeof(gate) = 'object'),
    created_at timestamptz NOT NULL DEFAULT now(),
    switched_at timestamptz,
    PRIMARY KEY (tenant_id, collection_id),
    FOREIGN KEY (tenant_id, collection_id) REFERENCES vectorforge.collections (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX embedding_switches_with_work ON vectorforge.embedding_switches (leased_until)
    WHERE state = 'removing' OR NOT complete;
SELECT vectorforge.enable_tenant_isolation('embedding_switches');
GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.embedding_switches TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.embedding_switches TO vectorforge_eraser;

-- For workers, across tenants: a switch with work to do, and nothing else of it.
CREATE POLICY dispatcher ON vectorforge.embedding_switches TO vectorforge_dispatcher USING (true);
GRANT SELECT (tenant_id, collection_id, state, complete, leased_until, created_at), UPDATE (leased_until)
    ON vectorforge.embedding_switches TO vectorforge_dispatcher;
CREATE FUNCTION vectorforge.claim_embedding_switch(lease interval)
RETURNS TABLE (claimed_tenant_id text, claimed_collection_id uuid)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF lease IS NULL OR lease <= interval '0' OR lease > interval '1 day' THEN
        RAISE EXCEPTION 'lease must be between 0 and 1 day' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT s.tenant_id, s.collection_id INTO claimed_tenant_id, claimed_collection_id
    FROM vectorforge.embedding_switches AS s
    WHERE (s.state = 'removing' OR NOT s.complete)
        AND (s.leased_until IS NULL OR s.leased_until < clock_timestamp())
    ORDER BY s.leased_until NULLS FIRST, s.created_at  -- the longest wait first
    LIMIT 1
    FOR UPDATE SKIP LOCKED;
    IF claimed_collection_id IS NULL THEN
        RETURN;
    END IF;
    UPDATE vectorforge.embedding_switches SET leased_until = clock_timestamp() + lease
    WHERE tenant_id = claimed_tenant_id AND collection_id = claimed_collection_id;
    RETURN NEXT;
END
$$;
CREATE FUNCTION vectorforge.embedding_switch_waits() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (
        SELECT FROM vectorforge.embedding_switches AS s
        WHERE (s.state = 'removing' OR NOT s.complete)
            AND (s.leased_until IS NULL OR s.leased_until < clock_timestamp())
    )
$$;
GRANT EXECUTE ON FUNCTION vectorforge.claim_embedding_switch(interval), vectorforge.embedding_switch_waits()
    TO vectorforge_app;
SELECT vectorforge.set_function_owner('vectorforge.claim_embedding_switch(interval)', 'vectorforge_dispatcher'),
    vectorforge.set_function_owner('vectorforge.embedding_switch_waits()', 'vectorforge_dispatcher');
