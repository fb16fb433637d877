-- HNSW indexes of single collections: docs/operate/storage.md.
SET LOCAL ROLE vectorforge_migrator;

-- Name of the HNSW index of one collection, or with NULL of a whole space; at most 63 bytes.
CREATE FUNCTION vectorforge.vector_index_name(space text, collection uuid) RETURNS text
LANGUAGE sql STABLE
RETURN concat_ws('_', 'embeddings', space, left(md5(collection::text), 16), 'hnsw');
GRANT EXECUTE ON FUNCTION vectorforge.vector_index_name(text, uuid) TO vectorforge_app;

-- The statement of 0005; with a collection that of its own index.
CREATE FUNCTION vectorforge.vector_index_statement(space text, online boolean, collection uuid) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    shared constant text := vectorforge.vector_index_statement(space, online);
BEGIN
    IF collection IS NULL THEN
        RETURN shared;
    END IF;
    RETURN replace(
        shared, vectorforge.vector_index_name(space, NULL), vectorforge.vector_index_name(space, collection)
    ) || format(' WHERE collection_id = %L::uuid', collection);
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
