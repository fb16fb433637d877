-- A change of a collection's embedding model: the vectors of another model beside the current ones.
SET LOCAL ROLE vectorforge_migrator;

-- The partition that writers fill beside "space"; NULL: no change is open. Here, so that the lock on the collection's
-- row that every writer takes covers it.
ALTER TABLE vectorforge.collections ADD COLUMN other_space text;

-- At most one for each collection. Its model is the new one, and after the switch the one before: a switch exchanges
-- the model here with that of the collection, and so does a rollback.
CREATE TABLE vectorforge.embedding_switches (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    collection_id uuid NOT NULL,
    id uuid NOT NULL,
    -- removing: finished or cancelled; the vectors of the model here go, then this row
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'switched', 'removing')),
    embedding_provider text NOT NULL,
    embedding_model text NOT NULL,
    dimension int NOT NULL CHECK (dimension BETWEEN 1 AND 16000),
    query_prefix text NOT NULL,
    document_prefix text NOT NULL,
    space text NOT NULL,
    -- whether every passage has a vector of both models, as far as is known
    complete boolean NOT NULL DEFAULT false,
    -- of the backfill's pass through the collection: the document it has come to
    position uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    leased_until timestamptz,
    failures int NOT NULL DEFAULT 0,
    error_code text,
    error_message text,
    -- what the last comparison of the two models has shown
    gate jsonb CHECK (jsonb_typeof(gate) = 'object'),
    created_at timestamptz NOT NULL DEFAULT now(),
    switched_at timestamptz,
    PRIMARY KEY (tenant_id, collection_id),
    FOREIGN KEY (tenant_id, collection_id) REFERENCES vectorforge.collections (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX embedding_switches_with_work ON vectorforge.embedding_switches (leased_until)
    WHERE state = 'removing' OR NOT complete;

ALTER TABLE vectorforge.embedding_switches ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.embedding_switches FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vectorforge.embedding_switches
    USING (tenant_id = NULLIF(current_setting('vectorforge.tenant', true), ''));
CREATE POLICY dispatcher ON vectorforge.embedding_switches TO vectorforge_dispatcher USING (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.embedding_switches TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.embedding_switches TO vectorforge_eraser;
GRANT SELECT (tenant_id, collection_id, state, complete, leased_until, created_at), UPDATE (leased_until)
    ON vectorforge.embedding_switches TO vectorforge_dispatcher;

-- Hands out, of all tenants, a change that somebody has to work for; it tells no more than whose it is.
CREATE FUNCTION vectorforge.claim_embedding_switch(lease interval)
RETURNS TABLE (claimed_tenant_id text, claimed_collection_id uuid)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF lease IS NULL OR lease <= interval '0' OR lease > interval '1 day' THEN
        RAISE EXCEPTION 'lease out of range' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT s.tenant_id, s.collection_id INTO claimed_tenant_id, claimed_collection_id
    FROM vectorforge.embedding_switches AS s
    WHERE (s.state = 'removing' OR NOT s.complete)
        AND (s.leased_until IS NULL OR s.leased_until < clock_timestamp())
    ORDER BY s.leased_until NULLS FIRST, s.created_at  -- whoever waits longest
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
GRANT CREATE ON SCHEMA vectorforge TO vectorforge_dispatcher;
ALTER FUNCTION vectorforge.claim_embedding_switch(interval) OWNER TO vectorforge_dispatcher;
ALTER FUNCTION vectorforge.embedding_switch_waits() OWNER TO vectorforge_dispatcher;
REVOKE CREATE ON SCHEMA vectorforge FROM vectorforge_dispatcher;
GRANT EXECUTE ON FUNCTION vectorforge.claim_embedding_switch(interval), vectorforge.embedding_switch_waits()
    TO vectorforge_app;

-- A second partition of the same metric, dimension and kind, for a collection whose vectors are in the first: two
-- models may have equally many dimensions. "cosine_384" has "cosine_384_alt", "cosine_384_half" "cosine_384_alt_half".
-- Runs as the owner, because the app may not create tables.
CREATE FUNCTION vectorforge.ensure_alternate_space(first_space text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '3s'
AS $$
DECLARE
    space constant text := regexp_replace(first_space, '^([a-z0-9_]*_[0-9]+)', '\1_alt');
    original constant text := 'embeddings_' || first_space;
    partition constant text := 'embeddings_' || space;
    storage "char";
    made_by text;
BEGIN
    IF first_space IS NULL OR first_space !~ '^(cosine|inner_product|l2)_[0-9]+(_[a-z]+)?$' OR first_space ~ '_alt'
            OR to_regclass('vectorforge.' || original) IS NULL THEN
        RAISE EXCEPTION 'unknown space' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('vectorforge.embedding_space', 0));
    -- by a query: see ensure_embedding_space()
    IF EXISTS (
        SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = 'vectorforge' AND c.relname = partition
    ) THEN
        RETURN space;
    END IF;
    IF (SELECT count(*) FROM pg_inherits WHERE inhparent = 'vectorforge.embeddings'::regclass) >= 128 THEN
        RAISE EXCEPTION 'too many embedding spaces' USING ERRCODE = 'configuration_limit_exceeded';
    END IF;
    EXECUTE format(
        'CREATE TABLE vectorforge.%I (LIKE vectorforge.embeddings INCLUDING DEFAULTS INCLUDING CONSTRAINTS, '
        'CONSTRAINT %I CHECK (space = %L AND public.vector_dims(embedding) = %s))',
        partition, partition || '_check', space, substring(first_space FROM '_([0-9]+)')
    );
    SELECT a.attstorage INTO storage FROM pg_attribute AS a
    WHERE a.attrelid = to_regclass('vectorforge.' || original) AND a.attname = 'embedding';
    EXECUTE format(
        'ALTER TABLE vectorforge.%I ALTER COLUMN embedding SET STORAGE %s',
        partition, CASE storage WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' ELSE 'EXTENDED' END
    );
    EXECUTE format('ALTER TABLE vectorforge.%I ENABLE ROW LEVEL SECURITY', partition);
    EXECUTE format('ALTER TABLE vectorforge.%I FORCE ROW LEVEL SECURITY', partition);
    EXECUTE format(
        'CREATE POLICY tenant ON vectorforge.%I '
        'USING (tenant_id = NULLIF(current_setting(''vectorforge.tenant'', true), ''''))', partition
    );
    -- The index that the first has, if it has one by now: its names begin with that of its table.
    FOR made_by IN
        SELECT pg_get_indexdef(i.indexrelid) FROM pg_index AS i
        JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_am AS m ON m.oid = c.relam
        WHERE i.indrelid = to_regclass('vectorforge.' || original) AND m.amname = 'hnsw' AND i.indisvalid
    LOOP
        EXECUTE replace(made_by, original, partition);
    END LOOP;
    EXECUTE format(
        'ALTER TABLE vectorforge.embeddings ATTACH PARTITION vectorforge.%I FOR VALUES IN (%L)',
        partition, space
    );
    RETURN space;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.ensure_alternate_space(text) TO vectorforge_app;

-- As in 0015, and a second time for the model to come: its index is built before it answers.
GRANT SELECT (other_space) ON vectorforge.collections TO vectorforge_dispatcher;
CREATE OR REPLACE FUNCTION vectorforge.embedding_space_sizes()
RETURNS TABLE (space text, collections bigint, vectors bigint, largest bigint)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT named.space, count(*), sum(c.chunk_count)::bigint, max(c.chunk_count)::bigint
    FROM vectorforge.collections AS c
    CROSS JOIN LATERAL (
        VALUES (coalesce(c.space, c.distance_metric || '_' || c.dimension)), (c.other_space)
    ) AS named (space)
    WHERE named.space IS NOT NULL
    GROUP BY 1
$$;
