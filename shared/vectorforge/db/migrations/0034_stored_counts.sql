-- Counts and positions that requests read instead of all rows of a tenant; 0035 has the indexes.
SET LOCAL ROLE vectorforge_migrator;

-- Bytes of the documents' texts in UTF-8; NULL: of an earlier version, and not counted yet by count_texts().
ALTER TABLE vectorforge.collections ADD COLUMN text_bytes bigint;
ALTER TABLE vectorforge.collections ALTER COLUMN text_bytes SET DEFAULT 0;
ALTER TABLE vectorforge.pending_changes ADD COLUMN text_bytes bigint NOT NULL DEFAULT 0;

-- As in 0021, with the texts. octet_length() does not read a text that is stored out of line.
CREATE OR REPLACE FUNCTION vectorforge.settle_changes() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM vectorforge.retitle_terms();
    PERFORM vectorforge.delete_postings();
    UPDATE vectorforge.collections AS c
    SET data_version = c.data_version + change.data_version,
        document_count = c.document_count + change.document_count,
        chunk_count = c.chunk_count + change.chunk_count,
        term_count = c.term_count + change.term_count,
        text_bytes = c.text_bytes + change.text_bytes,
        languages = CASE
            WHEN change.languages IS NULL OR change.languages <@ c.languages THEN c.languages
            ELSE ARRAY(
                SELECT unnest(coalesce(c.languages, CASE WHEN c.chunk_count > 0 THEN ARRAY[c.language] END))
                UNION SELECT unnest(change.languages) ORDER BY 1
            )
        END
    FROM (
        SELECT p.tenant_id, p.collection_id, sum(p.data_version) AS data_version,
               sum(p.document_count) AS document_count, sum(p.chunk_count) AS chunk_count,
               sum(p.term_count) AS term_count, sum(p.text_bytes) AS text_bytes,
               (
                   SELECT array_agg(DISTINCT config)
                   FROM vectorforge.pending_changes AS q CROSS JOIN unnest(q.languages) AS config
                   WHERE q.transaction = pg_current_xact_id() AND q.tenant_id = p.tenant_id
                       AND q.collection_id = p.collection_id
               ) AS languages
        FROM vectorforge.pending_changes AS p WHERE p.transaction = pg_current_xact_id()
        GROUP BY 1, 2 ORDER BY 1, 2
    ) AS change
    WHERE c.tenant_id = change.tenant_id AND c.id = change.collection_id;
    DELETE FROM vectorforge.pending_changes WHERE transaction = pg_current_xact_id();
END
$$;

CREATE OR REPLACE FUNCTION vectorforge.count_documents() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO vectorforge.pending_changes
            (tenant_id, collection_id, data_version, document_count, chunk_count, text_bytes)
        SELECT tenant_id, collection_id, count(*), count(*), sum(chunk_count), sum(octet_length(text))
        FROM added GROUP BY 1, 2;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO vectorforge.pending_changes
            (tenant_id, collection_id, data_version, document_count, chunk_count, text_bytes)
        SELECT tenant_id, collection_id, count(*), -count(*), -sum(chunk_count), -sum(octet_length(text))
        FROM removed GROUP BY 1, 2;
    ELSE
        INSERT INTO vectorforge.pending_changes
            (tenant_id, collection_id, data_version, document_count, chunk_count, text_bytes)
        SELECT tenant_id, collection_id, count(*) FILTER (WHERE sign = 1), sum(sign), sum(sign * chunk_count),
               sum(sign * bytes)
        FROM (
            SELECT tenant_id, collection_id, chunk_count, octet_length(text) AS bytes, 1 AS sign FROM added
            UNION ALL
            SELECT tenant_id, collection_id, chunk_count, octet_length(text), -1 FROM removed
        ) AS changed
        GROUP BY 1, 2;
        INSERT INTO vectorforge.pending_changes (tenant_id, retitled, titled_version)
        SELECT added.tenant_id, added.id, CASE WHEN added.version <> removed.version THEN added.version END
        FROM added JOIN removed ON removed.tenant_id = added.tenant_id AND removed.id = added.id
        WHERE (added.title, added.metadata -> 'language')
            IS DISTINCT FROM (removed.title, removed.metadata -> 'language');
    END IF;
    PERFORM vectorforge.settle_later(p.tenant_id) FROM vectorforge.pending_changes AS p
    WHERE p.transaction = pg_current_xact_id() LIMIT 1;
    RETURN NULL;
END
$$;

-- true: the file has become a document, and lists of files read that instead. Set at the end of the item, so that a file
-- may have a document before.
ALTER TABLE vectorforge.uploaded_files ADD COLUMN is_stored boolean NOT NULL DEFAULT false;
CREATE OR REPLACE FUNCTION vectorforge.empty_file() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE vectorforge.uploaded_files AS f
    SET content = NULL, is_stored = NEW.status <> 'failed' AND NEW.document_id IS NOT DISTINCT FROM f.id
    WHERE f.tenant_id = NEW.tenant_id AND f.job_id = NEW.job_id AND f.ordinal = NEW.ordinal;
    RETURN NULL;
END
$$;

-- For 0035: count what earlier versions have stored, a collection at a time. The lock makes it exact: transactions that
-- are not seen here settle their changes afterwards.
CREATE PROCEDURE vectorforge.count_texts()
LANGUAGE plpgsql
AS $$
DECLARE
    uncounted record;
BEGIN
    UPDATE vectorforge.uploaded_files AS f SET is_stored = true
    WHERE NOT f.is_stored AND f.job_id IS NOT NULL AND f.content IS NULL AND EXISTS (
        SELECT FROM vectorforge.documents AS d WHERE d.tenant_id = f.tenant_id AND d.id = f.id
    );
    COMMIT;
    FOR uncounted IN SELECT c.tenant_id, c.id FROM vectorforge.collections AS c WHERE c.text_bytes IS NULL LOOP
        PERFORM FROM vectorforge.collections AS c
        WHERE c.tenant_id = uncounted.tenant_id AND c.id = uncounted.id FOR NO KEY UPDATE;
        UPDATE vectorforge.collections AS c SET text_bytes = (
            SELECT coalesce(sum(octet_length(d.text)), 0) FROM vectorforge.documents AS d
            WHERE d.tenant_id = c.tenant_id AND d.collection_id = c.id
        )
        WHERE c.tenant_id = uncounted.tenant_id AND c.id = uncounted.id AND c.text_bytes IS NULL;
        COMMIT;
    END LOOP;
END
$$;

-- Conversations of a tenant (credential ''), of each credential, and of all sessions ('session:'), for their limits.
CREATE TABLE vectorforge.conversation_counts (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    credential text NOT NULL CHECK (char_length(credential) <= 512),
    conversations bigint NOT NULL,
    PRIMARY KEY (tenant_id, credential)
) WITH (fillfactor = 50);
SELECT vectorforge.enable_tenant_isolation('conversation_counts');
-- only the trigger writes, as the owner
CREATE POLICY keeper ON vectorforge.conversation_counts TO vectorforge_migrator USING (true);
CREATE POLICY keeper ON vectorforge.conversations FOR SELECT TO vectorforge_migrator USING (true);
GRANT SELECT ON vectorforge.conversation_counts TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.conversation_counts TO vectorforge_eraser;

-- Rows in the order of their key, so that transactions that change several do not deadlock.
CREATE FUNCTION vectorforge.count_conversations() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO vectorforge.conversation_counts AS counted (tenant_id, credential, conversations)
    SELECT changed.tenant_id, named.credential, sum(CASE TG_OP WHEN 'DELETE' THEN -1 ELSE 1 END)
    FROM changed CROSS JOIN LATERAL (
        VALUES (''), (nullif(changed.credential, '')),
            (CASE WHEN changed.credential LIKE 'session:%' THEN 'session:' END)
    ) AS named (credential)
    WHERE named.credential IS NOT NULL
    GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (tenant_id, credential) DO UPDATE
    SET conversations = counted.conversations + excluded.conversations;
    IF TG_OP = 'DELETE' THEN
        DELETE FROM vectorforge.conversation_counts AS counted USING changed
        WHERE counted.tenant_id = changed.tenant_id AND counted.conversations <= 0
            AND counted.credential IN ('', changed.credential, 'session:');
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER count_added AFTER INSERT ON vectorforge.conversations
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION vectorforge.count_conversations();
CREATE TRIGGER count_removed AFTER DELETE ON vectorforge.conversations
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION vectorforge.count_conversations();
INSERT INTO vectorforge.conversation_counts (tenant_id, credential, conversations)
SELECT c.tenant_id, named.credential, count(*)
FROM vectorforge.conversations AS c CROSS JOIN LATERAL (
    VALUES (''), (nullif(c.credential, '')), (CASE WHEN c.credential LIKE 'session:%' THEN 'session:' END)
) AS named (credential)
WHERE named.credential IS NOT NULL
GROUP BY 1, 2;

-- Place of an answer that is stored under a key among the tenant's, in the order of their ends, and the bytes of those
-- before it: the oldest beyond the limits are found without counting the others. NULL: running, without a key, or of an
-- earlier version; "bytes_before" also if its content was dropped.
ALTER TABLE vectorforge.answer_streams ADD COLUMN place bigint, ADD COLUMN bytes_before bigint;

-- Give the planner statistics of the tables that have changed by a fifth, at least by so many rows, since it got any: a
-- bulk load grows tables from nothing, and autovacuum comes a minute later. Of "embeddings" it never makes those of the
-- whole, so they are made with a partition's.
CREATE FUNCTION vectorforge.analyze_changed_tables(fewest bigint) RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    changed constant text[] := ARRAY(
        SELECT DISTINCT coalesce(i.inhparent, s.relid)::regclass::text FROM pg_stat_all_tables AS s
        JOIN pg_class AS c ON c.oid = s.relid LEFT JOIN pg_inherits AS i ON i.inhrelid = s.relid
        WHERE s.schemaname = 'vectorforge' AND c.relkind = 'r'
            AND s.n_mod_since_analyze >= greatest(fewest, c.reltuples / 5)
    );
    table_name text;
BEGIN
    FOREACH table_name IN ARRAY changed LOOP
        EXECUTE format('ANALYZE (SKIP_LOCKED) %s', table_name);
    END LOOP;
    RETURN changed;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.analyze_changed_tables(bigint) TO vectorforge_app;

-- Small tables whose rows change with every request or document: their size on disk may stay, as it is needed again, and
-- cutting it off takes an exclusive lock.
ALTER TABLE vectorforge.pending_changes SET (vacuum_truncate = off);
ALTER TABLE vectorforge.limit_reservations SET (vacuum_truncate = off);
ALTER TABLE vectorforge.ingestion_jobs SET (vacuum_truncate = off);
ALTER TABLE vectorforge.ingestion_job_items SET (vacuum_truncate = off);

-- Reservations are deleted as fast as they are made. A scan of the index marks entries of deleted rows, so that the next
-- one skips them; a bitmap scan reads them all again, until autovacuum comes a minute later.
ALTER FUNCTION vectorforge.reserve(
    text, uuid, int, boolean, bigint, numeric, interval, int, bigint, numeric, int
) SET enable_bitmapscan = off;

-- Each chunk of a logged query by its key. For up to some thousand tombstones the planner would read them all, since it
-- expects a query to have 100 chunks; an erasure, which examines every logged query, read their product.
ALTER FUNCTION vectorforge.erased_log(vectorforge.query_logs) SET enable_seqscan = off;
ALTER FUNCTION vectorforge.erased_log(vectorforge.query_logs) SET enable_hashjoin = off;
ALTER FUNCTION vectorforge.erased_log(vectorforge.query_logs) SET enable_mergejoin = off;
