-- HNSW indexes of single collections: docs/operate/storage.md.
SET LOCAL ROLE vectorforge_migrator;

-- Name of the HNSW index of one collection, or with NULL of a whole space; at most 63 bytes.
CREATE FUNCTION vectorforge.vector_index_name(space text, collection uuid) RETURNS text
LANGUAGE sql STABLE
RETURN concat_ws('_', 'embeddings', space, left(md5(collection::text), 16), 'hnsw');
GRANT EXECUTE ON FUNCTION vectorforge.vector_index_name(text, uuid) TO vectorforge_app;

-- As in 0005; with a collection its own index.
DROP FUNCTION vectorforge.vector_index_statement(text, boolean);
CREATE FUNCTION vectorforge.vector_index_statement(space text, online boolean, collection uuid DEFAULT NULL) RETURNS text
LANGUAGE plpgsql STABLE
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
        'CREATE INDEX %s IF NOT EXISTS %I ON vectorforge.%I USING hnsw (%s)%s',
        CASE WHEN online THEN 'CONCURRENTLY' END,
        vectorforge.vector_index_name(space, collection), 'embeddings_' || space, expression,
        CASE WHEN collection IS NOT NULL THEN format(' WHERE collection_id = %L::uuid', collection) END
    );
END
$$;

-- Collections with more vectors than "larger_than" of 384 dimensions, or fewer longer ones, in each of their spaces;
-- across tenants, for the builder.
CREATE FUNCTION vectorforge.large_collections(larger_than bigint)
RETURNS TABLE (space text, collection_id uuid, vectors bigint)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT named.space, c.id, c.chunk_count
    FROM vectorforge.collections AS c
    CROSS JOIN LATERAL (
        VALUES (coalesce(c.space, c.distance_metric || '_' || c.dimension)), (c.other_space)
    ) AS named (space)
    WHERE named.space IS NOT NULL
        AND c.chunk_count * greatest(substring(named.space FROM '_([0-9]+)')::numeric / 384, 1) > larger_than
$$;
SELECT vectorforge.set_function_owner('vectorforge.large_collections(bigint)', 'vectorforge_dispatcher');

-- Number of vectors in the index that a search of the collection uses: its own, which has "own_rows", or that of its
-- space, of which only an estimate is known, below 0 if none is; NULL without an index.
CREATE FUNCTION vectorforge.indexed_rows(space text, collection uuid, own_rows bigint) RETURNS real
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (
        SELECT FROM pg_index AS i
        WHERE i.indexrelid = to_regclass('vectorforge.' || vectorforge.vector_index_name(space, collection))
            AND i.indisvalid
    ) THEN
        RETURN own_rows;
    END IF;
    RETURN (
        SELECT p.reltuples FROM pg_index AS i JOIN pg_class AS p ON p.oid = i.indrelid
        WHERE i.indexrelid = to_regclass('vectorforge.' || vectorforge.vector_index_name(space, NULL))
            AND i.indisvalid
    );
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.indexed_rows(text, uuid, bigint) TO vectorforge_app;
