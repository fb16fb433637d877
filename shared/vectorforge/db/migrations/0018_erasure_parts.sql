-- Parts of the steps of an erasure (0019). Each changes a bounded number of rows and adds to the erasure's counts.
SET LOCAL ROLE vectorforge_migrator;

-- All tables with rows of tenants, including those that later migrations add: children before the tables they refer to,
-- so that no cascade is larger than its step. A table without a tenant_id has the number of its collection ("scope").
CREATE FUNCTION vectorforge.tables_to_erase()
RETURNS TABLE (name text, of_tenant boolean, has_id boolean, has_document boolean, has_collection boolean)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE tables AS (
        SELECT c.oid, c.relname::text AS name, array_agg(a.attname::text) AS columns,
               bool_or(a.attname = 'id' AND a.atttypid = 'uuid'::regtype) AS has_id
        FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE c.relnamespace = 'vectorforge'::regnamespace AND c.relkind = 'r'
            AND c.relname NOT IN ('erasures', 'closed_tenants', 'pending_changes')
        GROUP BY 1, 2
    ), concerned AS (
        SELECT t.*, 'tenant_id' = ANY (t.columns) AS of_tenant FROM tables AS t
        WHERE t.columns && ARRAY['tenant_id', 'scope']
    ), edges AS (
        SELECT f.conrelid AS child, f.confrelid AS parent FROM pg_constraint AS f
        WHERE f.contype = 'f' AND f.conrelid <> f.confrelid
        UNION
        SELECT child.oid, parent.oid FROM concerned AS child, concerned AS parent
        WHERE 'scope' = ANY (child.columns) AND child.of_tenant
            AND 'scope' = ANY (parent.columns) AND NOT parent.of_tenant
        UNION
        SELECT child.oid, 'vectorforge.collections'::regclass FROM concerned AS child WHERE NOT child.of_tenant
    ), places (oid, place) AS (
        SELECT oid, 0 FROM concerned
        UNION
        SELECT e.parent, p.place + 1 FROM places AS p JOIN edges AS e ON e.child = p.oid WHERE p.place < 30
    )
    SELECT t.name, t.of_tenant, t.has_id, 'document_id' = ANY (t.columns), 'collection_id' = ANY (t.columns)
    FROM concerned AS t JOIN places AS p ON p.oid = t.oid
    GROUP BY t.oid, 1, 2, 3, 4, 5 ORDER BY max(p.place), t.name
$$;

-- Add to the number of deleted rows or emptied texts of an erasure.
CREATE FUNCTION vectorforge.count_erased(erasure vectorforge.erasures, counted text, number bigint) RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE vectorforge.erasures AS e
    SET counts = e.counts || jsonb_build_object(counted, coalesce((e.counts ->> counted)::bigint, 0) + number)
    WHERE e.tenant_id = erasure.tenant_id AND e.id = erasure.id AND number > 0
$$;

-- Delete at most "most" rows of a table that meet a condition, and add their number and their ids' digest to the
-- erasure. In the condition $1 is the tenant, $2 the given ids, $4 and $5 are the erasure's collection and profile.
CREATE FUNCTION vectorforge.erase_rows(
    erasure vectorforge.erasures, table_name text, has_id boolean, condition text, ids uuid[], most int
) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
-- by an index that begins with the tenant, however large the tenant's share of the table is
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    -- a partition counts as its table
    counted constant text := regexp_replace(table_name, '^embeddings_.*', 'embeddings');
    deleted bigint;
    digest bit(256);
BEGIN
    EXECUTE format(
        'WITH gone AS (DELETE FROM vectorforge.%1$I WHERE ctid = ANY (ARRAY('
        'SELECT ctid FROM vectorforge.%1$I WHERE (%2$s) LIMIT $3)) RETURNING %3$s AS key) '
        'SELECT count(*), bit_xor((''x'' || encode(sha256(convert_to(key, ''UTF8'')), ''hex''))::bit(256)) FROM gone',
        table_name, condition, CASE WHEN has_id THEN 'id::text' ELSE 'NULL::text' END
    ) INTO deleted, digest USING erasure.tenant_id, ids, most, erasure.collection_id, erasure.profile_id;
    PERFORM vectorforge.count_erased(erasure, counted, deleted);
    UPDATE vectorforge.erasures AS e
    SET digests = e.digests || jsonb_build_object(
        counted, (coalesce((e.digests ->> counted)::bit(256), 0::bit(256)) # digest)::text
    )
    WHERE e.tenant_id = erasure.tenant_id AND e.id = erasure.id AND digest IS NOT NULL;
    RETURN deleted;
END
$$;

-- Return the next documents to erase: with at most "most" chunks, but at least one document. NULL: none is left.
CREATE FUNCTION vectorforge.documents_to_erase(erasure vectorforge.erasures, most int) RETURNS uuid[]
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT array_agg(first.id) FROM (
        SELECT candidate.id, sum(candidate.chunk_count) OVER (ORDER BY candidate.id) - candidate.chunk_count AS before
        FROM (
            SELECT d.id, d.chunk_count FROM vectorforge.documents AS d
            WHERE d.tenant_id = erasure.tenant_id AND d.collection_id = erasure.collection_id
                AND CASE erasure.kind
                    WHEN 'document' THEN d.id = erasure.document_id
                    WHEN 'profile' THEN d.id IN (
                        SELECT p.document_id FROM vectorforge.profile_documents AS p
                        WHERE p.tenant_id = erasure.tenant_id AND p.collection_id = erasure.collection_id
                            AND p.profile_id = erasure.profile_id
                    )
                    ELSE true
                END
            ORDER BY d.id LIMIT 200
        ) AS candidate
    ) AS first WHERE first.before < most
$$;

-- Delete jobs that would bring a document back. True: one is running, and will finish with its document soon.
CREATE FUNCTION vectorforge.erase_jobs(erasure vectorforge.erasures) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    -- NULL for a profile, whose documents are written without a job
    given_source constant text := (
        SELECT d.source FROM vectorforge.documents AS d
        WHERE d.tenant_id = erasure.tenant_id AND d.id = erasure.document_id
    );
    deleted bigint;
BEGIN
    IF given_source IS NULL THEN
        RETURN false;
    END IF;
    IF EXISTS (
        SELECT FROM vectorforge.ingestion_job_items AS i
        JOIN vectorforge.ingestion_jobs AS j ON j.tenant_id = i.tenant_id AND j.id = i.job_id
        WHERE i.tenant_id = erasure.tenant_id AND i.source = given_source AND j.collection_id = erasure.collection_id
            AND i.status = 'running' AND j.lease_expires_at > clock_timestamp()
    ) THEN
        RETURN true;
    END IF;
    WITH gone AS (
        DELETE FROM vectorforge.ingestion_job_items AS i USING vectorforge.ingestion_jobs AS j
        WHERE i.tenant_id = erasure.tenant_id AND i.source = given_source
            AND j.tenant_id = i.tenant_id AND j.id = i.job_id AND j.collection_id = erasure.collection_id
        RETURNING i.job_id, i.status IN ('queued', 'running') AS waited
    ), fewer AS (
        UPDATE vectorforge.ingestion_jobs AS j SET documents_total = j.documents_total - waiting.number
        FROM (SELECT job_id, count(*) AS number FROM gone WHERE waited GROUP BY 1) AS waiting
        WHERE j.tenant_id = erasure.tenant_id AND j.id = waiting.job_id
    )
    SELECT count(*) INTO deleted FROM gone;
    PERFORM vectorforge.count_erased(erasure, 'ingestion_job_items', deleted);
    RETURN false;
END
$$;

-- Delete documents with everything that belongs to them, after storing their tombstones and the keys of their files.
CREATE FUNCTION vectorforge.erase_documents(erasure vectorforge.erasures, documents uuid[]) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    belonging record;
    deleted bigint := 0;
BEGIN
    INSERT INTO vectorforge.tombstones (tenant_id, erased_id, erasure_id)
    SELECT c.tenant_id, c.id, erasure.id FROM vectorforge.chunks AS c
    WHERE c.tenant_id = erasure.tenant_id AND c.collection_id = erasure.collection_id
        AND c.document_id = ANY (documents)
    ON CONFLICT DO NOTHING;
    UPDATE vectorforge.erasures AS e SET objects = e.objects || ARRAY(
        SELECT regexp_replace(d.source, '^s3://[^/]+/', '') FROM vectorforge.documents AS d
        WHERE d.tenant_id = erasure.tenant_id AND d.id = ANY (documents) AND d.parent_source IS NULL
            AND starts_with(regexp_replace(d.source, '^s3://[^/]+/', ''), erasure.tenant_id || '/')
            AND d.source LIKE 's3://%'
    )
    WHERE e.tenant_id = erasure.tenant_id AND e.id = erasure.id AND e.kind <> 'collection';
    FOR belonging IN
        SELECT t.* FROM vectorforge.tables_to_erase() AS t WHERE t.has_document AND t.name <> 'ingestion_job_items'
    LOOP
        deleted := deleted + vectorforge.erase_rows(
            erasure, belonging.name, belonging.has_id,
            CASE WHEN belonging.has_collection THEN 'collection_id = $4 AND ' ELSE '' END
                || 'tenant_id = $1 AND document_id = ANY ($2)',
            documents, NULL
        );
    END LOOP;
    RETURN deleted + vectorforge.erase_rows(
        erasure, 'documents', true, 'tenant_id = $1 AND collection_id = $4 AND id = ANY ($2)', documents, NULL
    );
END
$$;

-- Delete what remains of a collection after its documents, and the collection at the end; or rows of a whole tenant.
-- 0: nothing remains.
CREATE FUNCTION vectorforge.erase_rest(erasure vectorforge.erasures, most int) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    whole constant boolean := erasure.kind = 'tenant';
    belonging record;
    deleted bigint := 0;
BEGIN
    FOR belonging IN SELECT t.* FROM vectorforge.tables_to_erase() AS t LOOP
        deleted := deleted + CASE
            WHEN NOT belonging.of_tenant THEN vectorforge.erase_rows(
                erasure, belonging.name, belonging.has_id,
                'scope = ANY (ARRAY(SELECT c.term_scope FROM vectorforge.collections AS c WHERE c.tenant_id = $1'
                    || CASE WHEN whole THEN '))' ELSE ' AND c.id = $4))' END,
                NULL, most
            )
            WHEN whole THEN vectorforge.erase_rows(
                erasure, belonging.name, belonging.has_id, 'tenant_id = $1', NULL, most
            )
            WHEN belonging.name = 'ingestion_job_items' THEN vectorforge.erase_rows(
                erasure, belonging.name, belonging.has_id,
                'tenant_id = $1 AND job_id = ANY (ARRAY(SELECT j.id FROM vectorforge.ingestion_jobs AS j '
                    'WHERE j.tenant_id = $1 AND j.collection_id = $4))',
                NULL, most
            )
            WHEN belonging.name = 'query_logs' THEN 0  -- by its policy, later
            WHEN belonging.name = 'collections' THEN vectorforge.erase_rows(
                erasure, belonging.name, belonging.has_id, 'tenant_id = $1 AND id = $4', NULL, most
            )
            WHEN belonging.has_collection THEN vectorforge.erase_rows(
                erasure, belonging.name, belonging.has_id, 'tenant_id = $1 AND collection_id = $4', NULL, most
            )
            ELSE 0
        END;
        -- The next table only after this one is empty: it refers to none before it.
        EXIT WHEN deleted >= most;
    END LOOP;
    RETURN deleted;
END
$$;

-- Erase from the next records of the query log, and from conversations. Returns the number of records examined.
CREATE FUNCTION vectorforge.erase_logs(erasure vectorforge.erasures, most int) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    concerned uuid[];
    page record;
    messages bigint;
    changed bigint;
BEGIN
    SELECT count(*) AS number, max(log.created_at) AS last_time,
           (array_agg(log.id ORDER BY log.created_at DESC, log.id DESC))[1] AS last_id,
           array_agg(log.id) FILTER (WHERE log.erased) AS erased
    INTO page FROM (
        SELECT l.id, l.created_at, (vectorforge.erased_log(l)).logs IS NOT NULL AS erased
        FROM vectorforge.query_logs AS l
        WHERE l.tenant_id = erasure.tenant_id AND (
            erasure.position_time IS NULL OR (l.created_at, l.id) > (erasure.position_time, erasure.position_id)
        )
        ORDER BY l.created_at, l.id LIMIT most
    ) AS log;
    concerned := coalesce(page.erased, '{}');
    -- Messages of the conversation are stored separately, perhaps shortly after the record.
    INSERT INTO vectorforge.tombstones (tenant_id, erased_id, erasure_id)
    SELECT erasure.tenant_id, query, erasure.id FROM unnest(concerned) AS query ON CONFLICT DO NOTHING;
    PERFORM pg_advisory_xact_lock(vectorforge.query_lock(recent.id)) FROM (
        SELECT l.id FROM vectorforge.query_logs AS l
        WHERE l.tenant_id = erasure.tenant_id AND l.id = ANY (concerned)
            AND l.created_at > clock_timestamp() - interval '10 minutes'
        ORDER BY l.id
    ) AS recent;
    messages := vectorforge.erase_messages(erasure.tenant_id, concerned);
    IF erasure.logs = 'rows' THEN
        PERFORM vectorforge.erase_rows(
            erasure, 'query_logs', true, 'tenant_id = $1 AND id = ANY ($2)', concerned, NULL
        );
    ELSE
        UPDATE vectorforge.query_logs AS l
        SET query_text = '', generated_response = '', text_erased_at = clock_timestamp()
        WHERE l.tenant_id = erasure.tenant_id AND l.id = ANY (concerned) AND l.text_erased_at IS NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
        PERFORM vectorforge.count_erased(erasure, 'texts of query_logs', changed);
    END IF;
    PERFORM vectorforge.count_erased(erasure, 'texts of conversation_messages', messages);
    UPDATE vectorforge.erasures AS e
    SET position_time = coalesce(page.last_time, e.position_time),
        position_id = coalesce(page.last_id, e.position_id)
    WHERE e.tenant_id = erasure.tenant_id AND e.id = erasure.id;
    RETURN page.number;
END
$$;
