-- What the HNSW index of a partition is made of, and one only where it pays.
SET LOCAL ROLE vectorforge_migrator;

-- A partition's name tells all of it: metric, dimension, "alt" where it is a second one, and the kind of its index,
-- which is "full" where none is named. Full and half compare vectors (half in half precision, as full does above 2,000
-- dimensions), binary their signs; searches rank what these find by the full vectors, which are always kept.
-- Limits: https://github.com/pgvector/pgvector#hnsw.
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

-- As in 0003, with a kind and without the index: up to the limit of exact searches nobody uses one, and every vector
-- that is written has to find its place in it. `vectorforge index build` makes it once a collection is large enough.
CREATE FUNCTION vectorforge.ensure_embedding_space(metric text, dimension int, kind text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '3s'
AS $$
DECLARE
    space constant text := concat_ws('_', metric, dimension, nullif(kind, 'full'));
    partition constant text := 'embeddings_' || space;
BEGIN
    IF metric IS NULL OR metric NOT IN ('cosine', 'inner_product', 'l2')
            OR dimension IS NULL OR dimension NOT BETWEEN 1 AND 16000
            OR kind IS NULL OR kind NOT IN ('full', 'half', 'binary')
            OR kind = 'half' AND dimension > 4000 OR kind = 'binary' AND metric = 'l2' THEN
        RAISE EXCEPTION 'unknown metric, dimension or kind' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF to_regclass('vectorforge.' || partition) IS NOT NULL THEN
        RETURN space;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('vectorforge.embedding_space', 0));
    -- Made while this one waited? By a query: to_regclass() would repeat its cached answer.
    IF EXISTS (
        SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = 'vectorforge' AND c.relname = partition
    ) THEN
        RETURN space;
    END IF;
    -- The app decides when this is called, so it is bounded: every partition is planned for and vacuumed.
    IF (SELECT count(*) FROM pg_inherits WHERE inhparent = 'vectorforge.embeddings'::regclass) >= 128 THEN
        RAISE EXCEPTION 'too many embedding spaces' USING ERRCODE = 'configuration_limit_exceeded';
    END IF;

    -- Made apart and attached, so that readers and writers of the other partitions are not held up.
    EXECUTE format(
        'CREATE TABLE vectorforge.%I (LIKE vectorforge.embeddings INCLUDING DEFAULTS INCLUDING CONSTRAINTS, '
        'CONSTRAINT %I CHECK (space = %L AND public.vector_dims(embedding) = %s))',
        partition, partition || '_check', space, dimension
    );
    -- In the row itself where a row then still fits a page of 8 kB; beyond that, beside it and uncompressed.
    EXECUTE format(
        'ALTER TABLE vectorforge.%I ALTER COLUMN embedding SET STORAGE %s',
        partition, CASE WHEN dimension <= 1900 THEN 'PLAIN' ELSE 'EXTERNAL' END
    );
    EXECUTE format('ALTER TABLE vectorforge.%I ENABLE ROW LEVEL SECURITY', partition);
    EXECUTE format('ALTER TABLE vectorforge.%I FORCE ROW LEVEL SECURITY', partition);
    EXECUTE format(
        'CREATE POLICY tenant ON vectorforge.%I '
        'USING (tenant_id = NULLIF(current_setting(''vectorforge.tenant'', true), ''''))', partition
    );
    EXECUTE format(
        'ALTER TABLE vectorforge.embeddings ATTACH PARTITION vectorforge.%I FOR VALUES IN (%L)',
        partition, space
    );
    RETURN space;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.ensure_embedding_space(text, int, text) TO vectorforge_app;

-- What the version before calls.
CREATE OR REPLACE FUNCTION vectorforge.ensure_embedding_space(metric text, dimension int) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '3s'
AS $$
BEGIN
    RETURN vectorforge.ensure_embedding_space(metric, dimension, 'full');
END
$$;

-- Partitions that never held a row give their index up; the others keep theirs.
DO $$
DECLARE
    partition text;
BEGIN
    FOR partition IN
        SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'vectorforge.embeddings'::regclass AND pg_relation_size(c.oid) = 0
    LOOP
        EXECUTE format('DROP INDEX IF EXISTS vectorforge.%I', partition || '_hnsw');
    END LOOP;
END
$$;

-- An index pays for the largest collection of a partition, and collections belong to tenants. So whoever builds asks a
-- role that sees of them how large they are, and no more.
CREATE POLICY space_sizes ON vectorforge.collections FOR SELECT TO vectorforge_dispatcher USING (true);
GRANT SELECT (space, distance_metric, dimension, chunk_count) ON vectorforge.collections TO vectorforge_dispatcher;
CREATE FUNCTION vectorforge.embedding_space_sizes()
RETURNS TABLE (space text, collections bigint, vectors bigint, largest bigint)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(c.space, c.distance_metric || '_' || c.dimension), count(*), sum(c.chunk_count)::bigint,
           max(c.chunk_count)::bigint
    FROM vectorforge.collections AS c GROUP BY 1
$$;
GRANT CREATE ON SCHEMA vectorforge TO vectorforge_dispatcher;
ALTER FUNCTION vectorforge.embedding_space_sizes() OWNER TO vectorforge_dispatcher;
REVOKE CREATE ON SCHEMA vectorforge FROM vectorforge_dispatcher;
