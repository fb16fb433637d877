-- Partitions of the embeddings, made when the first collection of a metric and dimension is.
SET LOCAL ROLE vectorforge_migrator;

-- Runs as the owner, because the app may not create tables. Limits of pgvector:
-- https://github.com/pgvector/pgvector#hnsw (2,000 dimensions for vector, 4,000 for halfvec).
CREATE FUNCTION vectorforge.ensure_embedding_space(metric text, dimension int) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '3s'
AS $$
DECLARE
    space constant text := metric || '_' || dimension;
    partition constant text := 'embeddings_' || space;
    ops text;
BEGIN
    IF metric IS NULL OR metric NOT IN ('cosine', 'inner_product', 'l2')
            OR dimension IS NULL OR dimension NOT BETWEEN 1 AND 16000 THEN
        RAISE EXCEPTION 'unknown metric or dimension' USING ERRCODE = 'invalid_parameter_value';
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
    ops := CASE metric WHEN 'inner_product' THEN 'ip' ELSE metric END;
    IF dimension <= 2000 THEN
        EXECUTE format(
            'CREATE INDEX %I ON vectorforge.%I '
            'USING hnsw ((embedding::public.vector(%s)) public.vector_%s_ops)',
            partition || '_hnsw', partition, dimension, ops
        );
    ELSIF dimension <= 4000 THEN
        EXECUTE format(
            'CREATE INDEX %I ON vectorforge.%I '
            'USING hnsw ((embedding::public.halfvec(%s)) public.halfvec_%s_ops)',
            partition || '_hnsw', partition, dimension, ops
        );
    END IF;
    EXECUTE format(
        'ALTER TABLE vectorforge.embeddings ATTACH PARTITION vectorforge.%I FOR VALUES IN (%L)',
        partition, space
    );
    RETURN space;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.ensure_embedding_space(text, int) TO vectorforge_app;

-- The dimensions of the local and the default OpenAI model, so that a first collection costs nothing.
SELECT vectorforge.ensure_embedding_space('cosine', 384);
SELECT vectorforge.ensure_embedding_space('cosine', 1536);
