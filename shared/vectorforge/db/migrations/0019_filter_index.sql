-- no-transaction
-- For filter_candidates(). The collection's id is part of each path, so that what other collections hold is not read.
-- Writers add to a list that searches read as well, and that is merged once it has 256 kB.
DROP INDEX CONCURRENTLY IF EXISTS vectorforge.chunks_by_metadata;
CREATE INDEX CONCURRENTLY chunks_by_metadata ON vectorforge.chunks
    USING gin (jsonb_set('{}', ARRAY[collection_id::text], metadata) jsonb_path_ops)
    WITH (gin_pending_list_limit = 256);
