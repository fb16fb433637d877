-- Embeddings, partitioned by vector space, and their HNSW indexes.
SET LOCAL ROLE vectorforge_migrator;

-- Vectors of chunks. Separate from the chunks, because an exact scan then reads little else (7 times faster than
-- vectors stored out of line). One partition for each space, created by ensure_embedding_space().
CREATE TABLE vectorforge.embeddings (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    space text NOT NULL,
    collection_id uuid NOT NULL,
    document_id uuid NOT NULL,
    chunk_id uuid NOT NULL,
    embedding public.vector NOT NULL,
    PRIMARY KEY (tenant_id, chunk_id, space),
    FOREIGN KEY (tenant_id, collection_id, document_id)
        REFERENCES vectorforge.documents (tenant_id, collection_id, id) ON DELETE CASCADE
) PARTITION BY LIST (space);
CREATE INDEX embeddings_by_scope ON vectorforge.embeddings (tenant_id, collection_id, document_id);
SELECT vectorforge.enable_tenant_isolation('embeddings');
GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.embeddings TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.embeddings TO vectorforge_eraser;

-- Create and attach the partition of a space; false if there is one. For the functions below, which validate the space.
CREATE FUNCTION vectorforge.create_embedding_partition(space text, dimension int) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    partition constant text := 'embeddings_' || space;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('vectorforge.embedding_space', 0));
    -- Created during the wait? Query the catalog: to_regclass() would repeat its cached result.
    IF EXISTS (
        SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = 'vectorforge' AND c.relname = partition
    ) THEN
        RETURN false;
    END IF;
    -- Callers are users of the app, so the number is bounded: every partition is planned for and vacuumed.
    IF (SELECT count(*) FROM pg_inherits WHERE inhparent = 'vectorforge.embeddings'::regclass) >= 128 THEN
        RAISE EXCEPTION 'too many embedding spaces' USING ERRCODE = 'configuration_limit_exceeded';
    END IF;

    -- Created alone and then attached, so that readers and writers of other partitions are not blocked.
    EXECUTE format(
        'CREATE TABLE vectorforge.%I (LIKE vectorforge.embeddings INCLUDING DEFAULTS INCLUDING CONSTRAINTS, '
        'CONSTRAINT %I CHECK (space = %L AND public.vector_dims(embedding) = %s))',
        partition, partition || '_check', space, dimension
    );
    -- Inside the row while a row fits a page of 8 kB; above that, out of line and uncompressed.
    EXECUTE format(
        'ALTER TABLE vectorforge.%I ALTER COLUMN embedding SET STORAGE %s',
        partition, CASE WHEN dimension <= 1900 THEN 'PLAIN' ELSE 'EXTERNAL' END
    );
    PERFORM vectorforge.enable_tenant_isolation(partition);
    EXECUTE format(
        'ALTER TABLE vectorforge.embeddings ATTACH PARTITION vectorforge.%I FOR VALUES IN (%L)',
        partition, space
    );
    RETURN true;
END
$$;

-- Return the space of a metric, a dimension and a kind of index; create its partition if it is missing. Runs as the
-- owner, because the app may not create tables. Without an index: up to the limit of exact searches none is used, and
-- every write would have to update it. `vectorforge index build` creates it once a collection is large enough.
CREATE FUNCTION vectorforge.ensure_embedding_space(metric text, dimension int, kind text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '3s'
AS $$
DECLARE
    space constant text := concat_ws('_', metric, dimension, nullif(kind, 'full'));
BEGIN
    IF metric IS NULL OR metric NOT IN ('cosine', 'inner_product', 'l2')
            OR dimension IS NULL OR dimension NOT BETWEEN 1 AND 16000
            OR kind IS NULL OR kind NOT IN ('full', 'half', 'binary')
            OR kind = 'half' AND dimension > 4000 OR kind = 'binary' AND metric = 'l2' THEN
        RAISE EXCEPTION 'unknown metric, dimension or kind' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF to_regclass('vectorforge.embeddings_' || space) IS NULL THEN
        PERFORM vectorforge.create_embedding_partition(space, dimension);
    END IF;
    RETURN space;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.ensure_embedding_space(text, int, text) TO vectorforge_app;

-- Return a second space of the same metric, dimension and kind, for an embedding switch: two models may have the same
-- number of dimensions. "cosine_384" has "cosine_384_alt", "cosine_384_half" has "cosine_384_alt_half".
CREATE FUNCTION vectorforge.ensure_alternate_space(first_space text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '3s'
AS $$
DECLARE
    space constant text := regexp_replace(first_space, '^([a-z0-9_]*_[0-9]+)', '\1_alt');
    original constant text := 'embeddings_' || first_space;
    definition text;
BEGIN
    IF first_space IS NULL OR first_space !~ '^(cosine|inner_product|l2)_[0-9]+(_[a-z]+)?$' OR first_space ~ '_alt'
            OR to_regclass('vectorforge.' || original) IS NULL THEN
        RAISE EXCEPTION 'unknown space' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NOT vectorforge.create_embedding_partition(space, substring(first_space FROM '_([0-9]+)')::int) THEN
        RETURN space;
    END IF;
    -- The index of the first partition, if it has one: names of indexes begin with that of their table.
    FOR definition IN
        SELECT pg_get_indexdef(i.indexrelid) FROM pg_index AS i
        JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_am AS m ON m.oid = c.relam
        WHERE i.indrelid = to_regclass('vectorforge.' || original) AND m.amname = 'hnsw' AND i.indisvalid
    LOOP
        EXECUTE replace(definition, original, 'embeddings_' || space);
    END LOOP;
    RETURN space;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.ensure_alternate_space(text) TO vectorforge_app;

-- The dimensions of the local and the default OpenAI model, so that a first collection needs no DDL.
SELECT vectorforge.ensure_embedding_space('cosine', 384, 'full');
SELECT vectorforge.ensure_embedding_space('cosine', 1536, 'full');

-- Return the statement that creates the HNSW index of a space; NULL if it can have none. A space's name has its metric,
-- its dimension, "alt" for a second one, and the kind of index unless it is "full". Full and half compare vectors (half
-- in half precision, like full above 2,000 dimensions), binary compares signs; searches rank the results by the full
-- vectors, which are always stored. Limits: https://github.com/pgvector/pgvector#hnsw.
CREATE FUNCTION vectorforge.vector_index_statement(space text, online boolean) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    parts constant text[] := regexp_match(space, '^(cosine|inner_product|l2)_(\d{1,5})(?:_alt)?(?:_(half|binary))?$');
    metric constant text := CASE parts[1] WHEN 'inner_product' THEN 'ip' ELSE parts[1] END;
    dimension constant int := parts[2]::int;
    expression text;
BEGIN
    IF parts IS NULL THEN
        RAISE EXCEPTION 'unknown embedding space' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF parts[3] = 'binary' THEN
        expression := format('(public.binary_quantize(embedding)::bit(%s)) public.bit_hamming_ops', dimension);
    ELSIF parts[3] IS NULL AND dimension <= 2000 THEN
        expression := format('(embedding::public.vector(%s)) public.vector_%s_ops', dimension, metric);
    ELSIF dimension <= 4000 THEN
        expression := format('(embedding::public.halfvec(%s)) public.halfvec_%s_ops', dimension, metric);
    ELSE
        RETURN NULL;
    END IF;
    RETURN format(
        'CREATE INDEX %s IF NOT EXISTS %I ON vectorforge.%I USING hnsw (%s)',
        CASE WHEN online THEN 'CONCURRENTLY' END,
        'embeddings_' || space || '_hnsw', 'embeddings_' || space, expression
    );
END
$$;

-- Sizes of the spaces, across tenants: an index pays for the largest collection of a space. A collection counts a
-- second time in the space that an embedding switch fills, whose index is built before it serves.
CREATE FUNCTION vectorforge.embedding_space_sizes()
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
SELECT vectorforge.set_function_owner('vectorforge.embedding_space_sizes()', 'vectorforge_dispatcher');

-- Set the parameters of an HNSW scan inside the statement of a search, before the scan begins; for callers that have
-- entered their tenant. "tuples": vectors after which the scan stops; NULL: the server's setting. A SET statement would
-- pin a session of RDS Proxy; a function does not.
CREATE FUNCTION vectorforge.aim_index_scan(ef_search int, tuples int) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM set_config('hnsw.ef_search', greatest(1, least(ef_search, 1000))::text, true);
    -- The scan continues until enough rows pass the filters. If other tenants' vectors are close together, the first
    -- batch is theirs, and the wanted ones come in a later batch although they are nearer: strict_order drops those
    -- (https://github.com/pgvector/pgvector#iterative-index-scans). A search sorts the rows anyway.
    PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true);
    IF tuples IS NOT NULL THEN
        PERFORM set_config('hnsw.max_scan_tuples', greatest(1, tuples)::text, true);
    END IF;
    RETURN true;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.aim_index_scan(int, int) TO vectorforge_app;
