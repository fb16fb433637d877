-- Erasing a document, a profile, a collection or a tenant with all traces, and what proves it. docs/erasure.md.
SET LOCAL ROLE vectorforge_migrator;

-- One row for each erasure: how far it is, and at the end its certificate. No content: of names there are hashes.
CREATE TABLE vectorforge.erasures (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    id uuid NOT NULL,
    kind text NOT NULL CHECK (kind IN ('document', 'profile', 'collection', 'tenant')),
    collection_id uuid,
    document_id uuid,
    profile_id bigint,
    -- what becomes of the query log: "text": questions and answers are emptied; "rows": their rows go
    logs text NOT NULL CHECK (logs IN ('text', 'rows')),
    requested_by text NOT NULL CHECK (char_length(requested_by) <= 200),
    stage text NOT NULL DEFAULT 'waiting' CHECK (stage IN (
        'waiting', 'jobs', 'documents', 'collection', 'caches', 'logs', 'conversations', 'rows', 'objects', 'done'
    )),
    -- of the query log: the last row that was looked at
    position_time timestamptz,
    position_id uuid,
    -- how many rows of which table have gone; and of those with an id the XOR of the SHA-256 of the ids
    counts jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(counts) = 'object'),
    digests jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(digests) = 'object'),
    -- keys of uploaded files still to be deleted, or prefixes of keys, which end with a slash; empty at the end
    objects text[] NOT NULL DEFAULT '{}',
    lease_expires_at timestamptz NOT NULL DEFAULT clock_timestamp() + interval '30 seconds',
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    certificate text,
    certificate_sha256 bytea CHECK (octet_length(certificate_sha256) = 32),
    PRIMARY KEY (tenant_id, id),
    CHECK ((stage = 'done') = (finished_at IS NOT NULL AND certificate IS NOT NULL))
);
-- A second request for what is being erased joins the first.
CREATE UNIQUE INDEX erasures_running ON vectorforge.erasures
    (tenant_id, kind, collection_id, document_id, profile_id) NULLS NOT DISTINCT WHERE stage <> 'done';
CREATE INDEX erasures_of_tenants ON vectorforge.erasures (tenant_id, finished_at) WHERE kind = 'tenant';
CREATE INDEX erasures_of_collections ON vectorforge.erasures (tenant_id, collection_id) WHERE kind = 'collection';
CREATE INDEX erasures_by_time ON vectorforge.erasures (tenant_id, begun_at, id);

-- Ids of passages that are gone, and of queries that used them, for what is said of them later.
CREATE TABLE vectorforge.tombstones (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    erased_id uuid NOT NULL,
    erasure_id uuid NOT NULL,
    erased_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, erased_id)
);
CREATE INDEX tombstones_by_time ON vectorforge.tombstones (erased_at);

-- Tenants that are being erased: nobody enters them. Apart, because every transaction looks here.
CREATE TABLE vectorforge.closed_tenants (
    tenant_id text PRIMARY KEY CHECK (octet_length(tenant_id) BETWEEN 1 AND 128)
);

DO $$
DECLARE
    table_name text;
BEGIN
    FOREACH table_name IN ARRAY ARRAY['erasures', 'tombstones', 'closed_tenants'] LOOP
        EXECUTE format('ALTER TABLE vectorforge.%I ENABLE ROW LEVEL SECURITY', table_name);
        EXECUTE format('ALTER TABLE vectorforge.%I FORCE ROW LEVEL SECURITY', table_name);
        EXECUTE format(
            'CREATE POLICY tenant ON vectorforge.%I '
            'USING (tenant_id = NULLIF(current_setting(''vectorforge.tenant'', true), ''''))', table_name
        );
        -- for the functions below, which act as the owner: the log writer enters no tenant
        EXECUTE format('CREATE POLICY keeper ON vectorforge.%I TO vectorforge_migrator USING (true)', table_name);
        EXECUTE format('GRANT SELECT ON vectorforge.%I TO vectorforge_app, vectorforge_eraser', table_name);
    END LOOP;
END
$$;
GRANT SELECT (tenant_id) ON vectorforge.closed_tenants TO vectorforge_log_writer;

-- As in 0001. Whoever is inside a tenant holds a lock that an erasure waits for, after it has closed the tenant: so
-- what was begun before is seen by it, and what comes later is refused. It is one of the transaction, which does not
-- pin a session of RDS Proxy.
CREATE FUNCTION vectorforge.tenant_lock(tenant text) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN pg_catalog.hashtextextended('vectorforge.tenant ' || tenant, 0);
GRANT EXECUTE ON FUNCTION vectorforge.tenant_lock(text)
    TO vectorforge_app, vectorforge_log_writer, vectorforge_eraser;

-- Held while a query's record is emptied, and while what it said is added to a conversation.
CREATE FUNCTION vectorforge.query_lock(query uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN pg_catalog.hashtextextended('vectorforge.query ' || query::text, 0);
GRANT EXECUTE ON FUNCTION vectorforge.query_lock(uuid) TO vectorforge_app;

CREATE OR REPLACE FUNCTION vectorforge.enter_tenant(tenant text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF tenant IS NULL OR tenant = '' THEN
        RAISE EXCEPTION 'a tenant is required' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM set_config('vectorforge.tenant', tenant, true);
    -- A client that is frozen or cut off in the middle must not hold its locks, or a backend, for long.
    PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);
    PERFORM set_config('statement_timeout', '60s', true);
    PERFORM pg_advisory_xact_lock_shared(vectorforge.tenant_lock(tenant));
    -- after the lock, in a statement of its own: it sees what was committed meanwhile
    IF EXISTS (SELECT FROM vectorforge.closed_tenants AS c WHERE c.tenant_id = tenant) THEN
        RAISE EXCEPTION 'the tenant is being erased' USING ERRCODE = 'VF001';
    END IF;
END
$$;

-- For those who erase, and those who ask how far it is.
CREATE FUNCTION vectorforge.enter_erasure(tenant text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF tenant IS NULL OR tenant = '' THEN
        RAISE EXCEPTION 'a tenant is required' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM set_config('vectorforge.tenant', tenant, true);
    PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);
    PERFORM set_config('statement_timeout', '60s', true);
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.enter_erasure(text) TO vectorforge_app, vectorforge_eraser;

ALTER TABLE vectorforge.query_logs
    -- since then question and answer are empty
    ADD COLUMN text_erased_at timestamptz;

-- What is left of a question whose answer came from something that is gone: nothing of what was said.
CREATE FUNCTION vectorforge.erase_said(tenant text, queries uuid[]) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    before constant text := current_setting('vectorforge.tenant', true);
    said bigint;
BEGIN
    PERFORM set_config('vectorforge.tenant', tenant, true);
    UPDATE vectorforge.conversations AS c SET title = ''
    FROM vectorforge.conversation_messages AS m
    WHERE m.tenant_id = tenant AND m.query_id = ANY (queries) AND m.position = 0
        AND c.tenant_id = tenant AND c.id = m.conversation_id;
    UPDATE vectorforge.conversation_messages AS m SET content = '[erased]'
    WHERE m.tenant_id = tenant AND m.query_id = ANY (queries) AND m.content <> '[erased]';
    GET DIAGNOSTICS said = ROW_COUNT;
    DELETE FROM vectorforge.answer_streams AS s WHERE s.tenant_id = tenant AND s.query_id = ANY (queries);
    PERFORM set_config('vectorforge.tenant', coalesce(before, ''), true);
    RETURN said;
END
$$;

-- Whether a record of the query log says something about what was erased: NULL no, else what becomes of it, and by
-- which erasure.
CREATE FUNCTION vectorforge.erased_log(entry vectorforge.query_logs, OUT logs text, OUT erasure_id uuid)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    SELECT e.logs, e.id INTO logs, erasure_id FROM vectorforge.erasures AS e
    WHERE e.tenant_id = entry.tenant_id AND e.kind = 'collection' AND e.collection_id = entry.collection_id
    LIMIT 1;
    IF FOUND
            OR NOT EXISTS (SELECT FROM vectorforge.tombstones AS c WHERE c.tenant_id = entry.tenant_id) THEN
        RETURN;
    END IF;
    SELECT e.logs, e.id INTO logs, erasure_id
    FROM jsonb_array_elements_text(entry.retrieved_chunk_ids || entry.used_chunk_ids) AS named (id)
    JOIN vectorforge.tombstones AS c ON c.tenant_id = entry.tenant_id AND c.erased_id = named.id::uuid
    JOIN vectorforge.erasures AS e ON e.tenant_id = c.tenant_id AND e.id = c.erasure_id
    ORDER BY e.logs LIMIT 1;  -- 'rows' comes first
END
$$;

-- A record that was on its way while something was erased, or comes out of a dead-letter queue weeks later, brings
-- nothing back. A trigger, so that it is held whoever writes: server, log writer, or a version before.
CREATE FUNCTION vectorforge.refuse_erased_log() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    becomes record;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(vectorforge.tenant_lock(NEW.tenant_id));
    IF EXISTS (SELECT FROM vectorforge.closed_tenants AS c WHERE c.tenant_id = NEW.tenant_id) THEN
        RETURN NULL;
    END IF;
    -- Of before the end of the erasure; five seconds for clocks that differ. Later ones are a new beginning.
    IF EXISTS (
        SELECT FROM vectorforge.erasures AS e
        WHERE e.tenant_id = NEW.tenant_id AND e.kind = 'tenant'
            AND e.finished_at > coalesce(NEW.created_at, '-infinity') - interval '5 seconds'
    ) THEN
        RETURN NULL;
    END IF;
    becomes := vectorforge.erased_log(NEW);
    IF becomes.logs IS NULL THEN
        RETURN NEW;
    END IF;
    -- What was said is stored beside the record, a moment before or after it.
    PERFORM pg_advisory_xact_lock(vectorforge.query_lock(NEW.id));
    INSERT INTO vectorforge.tombstones (tenant_id, erased_id, erasure_id)
    VALUES (NEW.tenant_id, NEW.id, becomes.erasure_id) ON CONFLICT DO NOTHING;
    PERFORM vectorforge.erase_said(NEW.tenant_id, ARRAY[NEW.id]);
    IF becomes.logs = 'rows' THEN
        RETURN NULL;
    END IF;
    NEW.query_text := '';
    NEW.generated_response := '';
    NEW.text_erased_at := clock_timestamp();
    RETURN NEW;
END
$$;
CREATE TRIGGER refuse_erased BEFORE INSERT OR UPDATE ON vectorforge.query_logs
    FOR EACH ROW WHEN (NEW.text_erased_at IS NULL) EXECUTE FUNCTION vectorforge.refuse_erased_log();

CREATE FUNCTION vectorforge.refuse_erased_message() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(vectorforge.query_lock(NEW.query_id));
    IF EXISTS (
        SELECT FROM vectorforge.tombstones AS t WHERE t.tenant_id = NEW.tenant_id AND t.erased_id = NEW.query_id
    ) THEN
        NEW.content := '[erased]';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER refuse_erased BEFORE INSERT ON vectorforge.conversation_messages
    FOR EACH ROW WHEN (NEW.query_id IS NOT NULL) EXECUTE FUNCTION vectorforge.refuse_erased_message();

-- An answer that was on its way while its documents changed is of no use, and may quote what was erased.
CREATE FUNCTION vectorforge.refuse_outdated_answer() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (
        SELECT FROM vectorforge.collections AS c
        WHERE c.tenant_id = NEW.tenant_id AND c.id = NEW.collection_id AND c.data_version > NEW.data_version
    ) AND EXISTS (
        SELECT FROM vectorforge.erasures AS e WHERE e.tenant_id = NEW.tenant_id
    ) THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER refuse_outdated BEFORE INSERT OR UPDATE ON vectorforge.cached_answers
    FOR EACH ROW EXECUTE FUNCTION vectorforge.refuse_outdated_answer();

-- All tables with rows of tenants, also those that later migrations add: children before what they refer to, so that
-- no cascade is larger than its step. What has no tenant has the number of its collection ("scope"), as words have.
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
            AND c.relname NOT IN ('erasures', 'closed_tenants')
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

-- Deletes at most so many rows of a table that fulfil a condition; notes their number and their ids' digest at the
-- erasure. In the condition $1 is the tenant, $2 the ids given, $4 and $5 are the erasure's collection and profile.
CREATE FUNCTION vectorforge.erase_rows(
    erasure vectorforge.erasures, table_name text, has_id boolean, condition text, ids uuid[], most int
) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
-- by an index that begins with the tenant, whatever share of the table is his
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
    IF deleted > 0 THEN
        UPDATE vectorforge.erasures AS e
        SET counts = jsonb_set(
                e.counts, ARRAY[counted], to_jsonb(coalesce((e.counts ->> counted)::bigint, 0) + deleted)
            ),
            digests = CASE WHEN digest IS NULL THEN e.digests ELSE jsonb_set(
                e.digests, ARRAY[counted],
                to_jsonb((coalesce((e.digests ->> counted)::bit(256), 0::bit(256)) # digest)::text)
            ) END
        WHERE e.tenant_id = erasure.tenant_id AND e.id = erasure.id;
    END IF;
    RETURN deleted;
END
$$;

-- How an erasure begins; one that runs for the same is joined. NULL: there is nothing of the kind.
CREATE FUNCTION vectorforge.begin_erasure(
    new_id uuid, what text, collection uuid, document uuid, profile bigint, log_policy text, requester text
) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    tenant constant text := NULLIF(current_setting('vectorforge.tenant', true), '');
    found_id uuid;
    keys text[] := '{}';
BEGIN
    SELECT e.id INTO found_id FROM vectorforge.erasures AS e
    WHERE e.tenant_id = tenant AND e.kind = what AND e.stage <> 'done'
        AND (what = 'document' OR e.collection_id IS NOT DISTINCT FROM collection)
        AND e.document_id IS NOT DISTINCT FROM document AND e.profile_id IS NOT DISTINCT FROM profile;
    IF FOUND THEN
        RETURN found_id;
    END IF;
    IF what = 'document' THEN
        SELECT d.collection_id INTO collection FROM vectorforge.documents AS d
        WHERE d.tenant_id = tenant AND d.id = document;
    ELSIF what = 'profile' THEN
        PERFORM FROM vectorforge.profiles AS p
        WHERE p.tenant_id = tenant AND p.collection_id = collection AND p.profile_id = profile;
    ELSIF what = 'collection' THEN
        -- A name with a slash is none that a key of S3 could say.
        SELECT CASE WHEN strpos(c.name || tenant, '/') = 0 THEN ARRAY[tenant || '/' || c.name || '/'] ELSE '{}' END
        INTO keys FROM vectorforge.collections AS c WHERE c.tenant_id = tenant AND c.id = collection;
    ELSE
        keys := CASE WHEN strpos(tenant, '/') = 0 THEN ARRAY[tenant || '/'] ELSE '{}' END;
    END IF;
    IF what <> 'tenant' AND NOT FOUND THEN
        RETURN NULL;
    END IF;

    INSERT INTO vectorforge.erasures
        (tenant_id, id, kind, collection_id, document_id, profile_id, logs, requested_by, objects)
    VALUES (tenant, new_id, what, collection, document, profile, log_policy, requester, keys);
    IF what = 'tenant' THEN
        INSERT INTO vectorforge.closed_tenants (tenant_id) VALUES (tenant);
        -- What workers would be handed out of all tenants, and could not enter.
        DELETE FROM vectorforge.embedding_switches AS s WHERE s.tenant_id = tenant;
        UPDATE vectorforge.collections AS c SET terms_complete = true
        WHERE c.tenant_id = tenant AND NOT c.terms_complete;
    END IF;
    IF what IN ('tenant', 'collection') THEN
        UPDATE vectorforge.ingestion_jobs AS j
        SET status = 'failed', error_code = 'erased', finished_at = clock_timestamp(), lease_expires_at = NULL
        WHERE j.tenant_id = tenant AND j.status IN ('queued', 'running')
            AND (what = 'tenant' OR j.collection_id = collection);
    END IF;
    RETURN new_id;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.begin_erasure(uuid, text, uuid, uuid, bigint, text, text)
    TO vectorforge_app, vectorforge_eraser;

-- The documents that an erasure has still to take, at most so many passages of them, but at least one document.
CREATE FUNCTION vectorforge.documents_to_erase(erasure vectorforge.erasures, most int) RETURNS uuid[]
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT array_agg(first.id) FROM (
        SELECT candidate.id, sum(candidate.chunk_count) OVER (ORDER BY candidate.id) - candidate.chunk_count AS before FROM (
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

-- Jobs that would bring a document back. True: one is being carried out, and its document ends soon.
CREATE FUNCTION vectorforge.erase_jobs(erasure vectorforge.erasures) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    -- of a profile all documents are written at once, without a job
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
    UPDATE vectorforge.erasures AS e
    SET counts = jsonb_set(e.counts, '{ingestion_job_items}', to_jsonb(deleted))
    WHERE e.tenant_id = erasure.tenant_id AND e.id = erasure.id AND deleted > 0;
    RETURN false;
END
$$;

-- Some documents with all that belongs to them, after their tombstones and the keys of their files have been noted.
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

-- What is left of a collection once its documents are gone; itself at the end. Or of a whole tenant. 0: nothing is.
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
        -- The next table only once this one is empty: it refers to none before it.
        EXIT WHEN deleted >= most;
    END LOOP;
    RETURN deleted;
END
$$;

-- The next records of the query log, and what was said in conversations; the number of records looked at.
CREATE FUNCTION vectorforge.erase_logs(erasure vectorforge.erasures, most int) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    concerned uuid[];
    looked_at record;
    said bigint;
    changed bigint := 0;
BEGIN
    SELECT count(*) AS number, max(page.created_at) AS last_time,
           (array_agg(page.id ORDER BY page.created_at DESC, page.id DESC))[1] AS last_id,
           array_agg(page.id) FILTER (WHERE page.erased) AS erased
    INTO looked_at FROM (
        SELECT l.id, l.created_at, (vectorforge.erased_log(l)).logs IS NOT NULL AS erased FROM vectorforge.query_logs AS l
        WHERE l.tenant_id = erasure.tenant_id AND (
            erasure.position_time IS NULL OR (l.created_at, l.id) > (erasure.position_time, erasure.position_id)
        )
        ORDER BY l.created_at, l.id LIMIT most
    ) AS page;
    concerned := coalesce(looked_at.erased, '{}');
    -- What was said is stored beside the record, perhaps a moment after it.
    INSERT INTO vectorforge.tombstones (tenant_id, erased_id, erasure_id)
    SELECT erasure.tenant_id, query, erasure.id FROM unnest(concerned) AS query ON CONFLICT DO NOTHING;
    PERFORM pg_advisory_xact_lock(vectorforge.query_lock(recent.id)) FROM (
        SELECT l.id FROM vectorforge.query_logs AS l
        WHERE l.tenant_id = erasure.tenant_id AND l.id = ANY (concerned)
            AND l.created_at > clock_timestamp() - interval '10 minutes'
        ORDER BY l.id
    ) AS recent;
    said := vectorforge.erase_said(erasure.tenant_id, concerned);
    IF erasure.logs = 'rows' THEN
        changed := vectorforge.erase_rows(
            erasure, 'query_logs', true, 'tenant_id = $1 AND id = ANY ($2)', concerned, NULL
        );
        changed := 0;  -- counted there
    ELSE
        UPDATE vectorforge.query_logs AS l
        SET query_text = '', generated_response = '', text_erased_at = clock_timestamp()
        WHERE l.tenant_id = erasure.tenant_id AND l.id = ANY (concerned) AND l.text_erased_at IS NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
    END IF;
    UPDATE vectorforge.erasures AS e
    SET position_time = coalesce(looked_at.last_time, e.position_time),
        position_id = coalesce(looked_at.last_id, e.position_id),
        counts = e.counts
            || CASE WHEN said = 0 THEN '{}' ELSE jsonb_build_object(
                'texts of conversation_messages',
                coalesce((e.counts ->> 'texts of conversation_messages')::bigint, 0) + said
            ) END
            || CASE WHEN changed = 0 THEN '{}' ELSE jsonb_build_object(
                'texts of query_logs', coalesce((e.counts ->> 'texts of query_logs')::bigint, 0) + changed
            ) END
    WHERE e.tenant_id = erasure.tenant_id AND e.id = erasure.id;
    RETURN looked_at.number;
END
$$;

-- Answers in conversations of which no record says any more what they were made of: they are taken for erased. Those
-- of the last day are not, whose record may be on its way, and is held when it arrives.
CREATE FUNCTION vectorforge.erase_unknown_answers(erasure vectorforge.erasures, most int) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    said bigint;
BEGIN
    UPDATE vectorforge.conversation_messages AS m SET content = '[erased]'
    WHERE m.tenant_id = erasure.tenant_id AND m.ctid = ANY (ARRAY(
        SELECT n.ctid FROM vectorforge.conversation_messages AS n
        WHERE n.tenant_id = erasure.tenant_id AND n.role = 'assistant' AND n.content <> '[erased]'
            AND n.created_at < clock_timestamp() - interval '1 day' AND NOT EXISTS (
                SELECT FROM vectorforge.query_logs AS l WHERE l.tenant_id = n.tenant_id AND l.id = n.query_id
            )
        LIMIT most
    ));
    GET DIAGNOSTICS said = ROW_COUNT;
    UPDATE vectorforge.erasures AS e SET counts = e.counts || jsonb_build_object(
        'texts of conversation_messages', coalesce((e.counts ->> 'texts of conversation_messages')::bigint, 0) + said
    )
    WHERE e.tenant_id = erasure.tenant_id AND e.id = erasure.id AND said > 0;
    RETURN said;
END
$$;

-- One step of an erasure, small enough for a transaction of its own; whoever calls it next goes on where it ended.
-- "waits": somebody has to end something first; try again soon. As the owner: a table that forgets to let the eraser
-- delete is erased all the same. Row-level security holds: only the tenant that was entered is seen.
CREATE FUNCTION vectorforge.erasure_step(erasure uuid, most int, OUT stage text, OUT rows bigint, OUT waits boolean)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '3s'
AS $$
DECLARE
    tenant constant text := NULLIF(current_setting('vectorforge.tenant', true), '');
    it vectorforge.erasures;
    documents uuid[];
    following text;
BEGIN
    IF most IS NULL OR most NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'most out of range' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    rows := 0;
    waits := false;
    SELECT e.* INTO it FROM vectorforge.erasures AS e WHERE e.tenant_id = tenant AND e.id = erasure FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no such erasure' USING ERRCODE = 'no_data_found';
    END IF;
    IF it.stage = 'waiting' THEN
        IF it.kind = 'tenant' THEN
            -- Whoever was inside when the tenant was closed ends first; nobody has come in since.
            PERFORM pg_advisory_xact_lock(vectorforge.tenant_lock(tenant));
            following := 'rows';
        ELSE
            following := 'jobs';
        END IF;
    ELSIF it.stage = 'jobs' THEN
        waits := vectorforge.erase_jobs(it);
        following := CASE WHEN waits THEN 'jobs' ELSE 'documents' END;
    ELSIF it.stage = 'documents' THEN
        documents := vectorforge.documents_to_erase(it, most);
        IF documents IS NOT NULL THEN
            rows := vectorforge.erase_documents(it, documents);
            following := 'documents';
        ELSIF it.kind = 'profile' THEN
            rows := vectorforge.erase_rows(
                it, 'profiles', false, 'tenant_id = $1 AND collection_id = $4 AND profile_id = $5', NULL, NULL
            );
            following := 'caches';
        ELSE
            following := CASE it.kind WHEN 'collection' THEN 'collection' ELSE 'caches' END;
        END IF;
    ELSIF it.stage = 'collection' THEN
        rows := vectorforge.erase_rest(it, most);
        following := CASE WHEN rows > 0 THEN 'collection' ELSE 'caches' END;
    ELSIF it.stage = 'caches' THEN
        -- What was being written of before the tombstones ends first; then it is found, here and in the log.
        PERFORM pg_advisory_xact_lock(vectorforge.tenant_lock(tenant));
        rows := vectorforge.erase_rows(
            it, 'cached_answers', false, 'tenant_id = $1 AND collection_id = $4', NULL, most
        );
        following := CASE WHEN rows > 0 THEN 'caches' ELSE 'logs' END;
    ELSIF it.stage = 'logs' THEN
        rows := vectorforge.erase_logs(it, most);
        following := CASE WHEN rows > 0 THEN 'logs' ELSE 'conversations' END;
    ELSIF it.stage = 'conversations' THEN
        rows := vectorforge.erase_unknown_answers(it, most);
        following := CASE WHEN rows > 0 THEN 'conversations' ELSE 'objects' END;
    ELSIF it.stage = 'rows' THEN
        rows := vectorforge.erase_rest(it, most);
        following := CASE WHEN rows > 0 THEN 'rows' ELSE 'objects' END;
    ELSE
        following := it.stage;
    END IF;
    UPDATE vectorforge.erasures AS e
    SET stage = following, lease_expires_at = clock_timestamp() + interval '30 seconds'
    WHERE e.tenant_id = tenant AND e.id = erasure AND e.stage <> 'done';
    stage := following;
EXCEPTION WHEN lock_not_available THEN
    stage := coalesce(it.stage, 'waiting');
    rows := 0;
    waits := true;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.erasure_step(uuid, int) TO vectorforge_app, vectorforge_eraser;

-- Uploaded files that are gone from their bucket.
CREATE FUNCTION vectorforge.note_erased_objects(erasure uuid, keys text[], number bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE vectorforge.erasures AS e
    SET objects = ARRAY(SELECT o FROM unnest(e.objects) AS o WHERE o <> ALL (keys)),
        counts = e.counts || CASE WHEN number = 0 THEN '{}' ELSE jsonb_build_object(
            'uploaded files', coalesce((e.counts ->> 'uploaded files')::bigint, 0) + number
        ) END
    WHERE e.tenant_id = NULLIF(current_setting('vectorforge.tenant', true), '') AND e.id = erasure
        AND e.stage = 'objects';
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.note_erased_objects(uuid, text[], bigint)
    TO vectorforge_app, vectorforge_eraser;

-- The end: the certificate is kept, what named files goes, and the tenant is open again. False: it had ended before.
CREATE FUNCTION vectorforge.finish_erasure(erasure uuid, proof text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    tenant constant text := NULLIF(current_setting('vectorforge.tenant', true), '');
BEGIN
    UPDATE vectorforge.erasures AS e
    SET stage = 'done', finished_at = clock_timestamp(), certificate = proof, objects = '{}',
        certificate_sha256 = sha256(convert_to(proof, 'UTF8'))
    WHERE e.tenant_id = tenant AND e.id = erasure AND e.stage = 'objects';
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM vectorforge.closed_tenants AS c USING vectorforge.erasures AS e
    WHERE c.tenant_id = tenant AND e.tenant_id = tenant AND e.id = erasure AND e.kind = 'tenant';
    RETURN true;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.finish_erasure(uuid, text) TO vectorforge_app, vectorforge_eraser;

-- For workers, of all tenants: an erasure that nobody goes on with; and what has been kept for long enough.
CREATE POLICY dispatcher ON vectorforge.erasures TO vectorforge_dispatcher USING (true);
CREATE POLICY dispatcher ON vectorforge.tombstones TO vectorforge_dispatcher USING (true);
GRANT SELECT (tenant_id, id, stage, lease_expires_at, begun_at), UPDATE (lease_expires_at)
    ON vectorforge.erasures TO vectorforge_dispatcher;
GRANT SELECT (tenant_id, erased_id, erased_at), DELETE ON vectorforge.tombstones TO vectorforge_dispatcher;
GRANT SELECT (text_erased_at), UPDATE (query_text, generated_response, text_erased_at)
    ON vectorforge.query_logs TO vectorforge_dispatcher;
CREATE FUNCTION vectorforge.claim_erasure(lease interval)
RETURNS TABLE (claimed_tenant_id text, claimed_erasure_id uuid)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF lease IS NULL OR lease <= interval '0' OR lease > interval '1 day' THEN
        RAISE EXCEPTION 'lease out of range' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT e.tenant_id, e.id INTO claimed_tenant_id, claimed_erasure_id FROM vectorforge.erasures AS e
    WHERE e.stage <> 'done' AND e.lease_expires_at < clock_timestamp()
    ORDER BY e.lease_expires_at LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF claimed_erasure_id IS NULL THEN
        RETURN;
    END IF;
    UPDATE vectorforge.erasures SET lease_expires_at = clock_timestamp() + lease
    WHERE tenant_id = claimed_tenant_id AND id = claimed_erasure_id;
    RETURN NEXT;
END
$$;

-- Questions and answers that are older go, their rows stay; a bounded number a call. With them tombstones of passages
-- that no message can speak of any more: SQS keeps one for 14 days, and a dead-letter queue for as long again.
CREATE FUNCTION vectorforge.erase_old_log_texts(kept interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    texts bigint;
    tombstones bigint;
BEGIN
    IF kept IS NULL OR kept < interval '1 day' THEN
        RAISE EXCEPTION 'kept out of range' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE vectorforge.query_logs SET query_text = '', generated_response = '', text_erased_at = clock_timestamp()
    WHERE (tenant_id, id) IN (
        SELECT old.tenant_id, old.id FROM vectorforge.query_logs AS old
        WHERE old.created_at < clock_timestamp() - kept AND old.text_erased_at IS NULL LIMIT 1000
    );
    GET DIAGNOSTICS texts = ROW_COUNT;
    DELETE FROM vectorforge.tombstones WHERE (tenant_id, erased_id) IN (
        SELECT old.tenant_id, old.erased_id FROM vectorforge.tombstones AS old
        WHERE old.erased_at < clock_timestamp() - interval '60 days' LIMIT 5000
    );
    GET DIAGNOSTICS tombstones = ROW_COUNT;
    RETURN texts + tombstones;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.claim_erasure(interval), vectorforge.erase_old_log_texts(interval)
    TO vectorforge_app;
GRANT CREATE ON SCHEMA vectorforge TO vectorforge_dispatcher;
ALTER FUNCTION vectorforge.claim_erasure(interval) OWNER TO vectorforge_dispatcher;
ALTER FUNCTION vectorforge.erase_old_log_texts(interval) OWNER TO vectorforge_dispatcher;
REVOKE CREATE ON SCHEMA vectorforge FROM vectorforge_dispatcher;
