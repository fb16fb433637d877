-- Erasures of a document, a profile, a collection or a tenant: their records, and what keeps erased content from coming
-- back. The steps are in 0018 and 0019. docs/operate/erasure.md.
SET LOCAL ROLE vectorforge_migrator;

-- One row for each erasure: its progress, and at the end its certificate. No content: names are stored as hashes.
CREATE TABLE vectorforge.erasures (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    id uuid NOT NULL,
    kind text NOT NULL CHECK (kind IN ('document', 'profile', 'collection', 'tenant')),
    collection_id uuid,
    document_id uuid,
    profile_id bigint,
    -- what happens to the query log: "text": queries and answers are emptied; "rows": their rows are deleted
    logs text NOT NULL CHECK (logs IN ('text', 'rows')),
    requested_by text NOT NULL CHECK (char_length(requested_by) <= 200),
    stage text NOT NULL DEFAULT 'waiting' CHECK (stage IN (
        'waiting', 'jobs', 'documents', 'collection', 'caches', 'logs', 'conversations', 'rows', 'objects', 'done'
    )),
    -- the last row of the query log that was examined
    position_time timestamptz,
    position_id uuid,
    -- number of deleted rows by table; and for tables with an id the XOR of the SHA-256 of the ids
    counts jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(counts) = 'object'),
    digests jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(digests) = 'object'),
    -- keys of uploaded files still to delete, or prefixes of keys, which end with a slash; empty at the end
    objects text[] NOT NULL DEFAULT '{}',
    lease_expires_at timestamptz NOT NULL DEFAULT clock_timestamp() + interval '30 seconds',
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    certificate text,
    certificate_sha256 bytea CHECK (octet_length(certificate_sha256) = 32),
    PRIMARY KEY (tenant_id, id),
    CHECK ((stage = 'done') = (finished_at IS NOT NULL AND certificate IS NOT NULL))
);
-- a second request for what is being erased joins the first
CREATE UNIQUE INDEX erasures_running ON vectorforge.erasures
    (tenant_id, kind, collection_id, document_id, profile_id) NULLS NOT DISTINCT WHERE stage <> 'done';
CREATE INDEX erasures_of_tenants ON vectorforge.erasures (tenant_id, finished_at) WHERE kind = 'tenant';
CREATE INDEX erasures_of_collections ON vectorforge.erasures (tenant_id, collection_id) WHERE kind = 'collection';
CREATE INDEX erasures_by_time ON vectorforge.erasures (tenant_id, begun_at, id);

-- Ids of erased chunks, and of queries that used them, to recognize late messages about them.
CREATE TABLE vectorforge.tombstones (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    erased_id uuid NOT NULL,
    erasure_id uuid NOT NULL,
    erased_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, erased_id)
);
CREATE INDEX tombstones_by_time ON vectorforge.tombstones (erased_at);

SELECT vectorforge.enable_tenant_isolation('erasures'), vectorforge.enable_tenant_isolation('tombstones');
-- for functions that run as the owner: the log writer enters no tenant
CREATE POLICY keeper ON vectorforge.erasures TO vectorforge_migrator USING (true);
CREATE POLICY keeper ON vectorforge.tombstones TO vectorforge_migrator USING (true);
GRANT SELECT ON vectorforge.erasures, vectorforge.tombstones TO vectorforge_app, vectorforge_eraser;

-- The lock held while a query's record is emptied, and while its texts are added to a conversation.
CREATE FUNCTION vectorforge.query_lock(query uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN pg_catalog.hashtextextended('vectorforge.query ' || query::text, 0);
GRANT EXECUTE ON FUNCTION vectorforge.query_lock(uuid) TO vectorforge_app;

-- Erase what conversations and stored streams contain of queries whose answers used erased content. Returns the
-- number of erased messages.
CREATE FUNCTION vectorforge.erase_messages(tenant text, queries uuid[]) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    before constant text := current_setting('vectorforge.tenant', true);
    messages bigint;
BEGIN
    PERFORM set_config('vectorforge.tenant', tenant, true);
    UPDATE vectorforge.conversations AS c SET title = ''
    FROM vectorforge.conversation_messages AS m
    WHERE m.tenant_id = tenant AND m.query_id = ANY (queries) AND m.position = 0
        AND c.tenant_id = tenant AND c.id = m.conversation_id;
    UPDATE vectorforge.conversation_messages AS m SET content = '[erased]'
    WHERE m.tenant_id = tenant AND m.query_id = ANY (queries) AND m.content <> '[erased]';
    GET DIAGNOSTICS messages = ROW_COUNT;
    DELETE FROM vectorforge.answer_streams AS s WHERE s.tenant_id = tenant AND s.query_id = ANY (queries);
    PERFORM set_config('vectorforge.tenant', coalesce(before, ''), true);
    RETURN messages;
END
$$;

-- Return the erasure that a record of the query log is subject to, and what it does to logs; NULL: none.
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
    ORDER BY e.logs LIMIT 1;  -- 'rows' sorts first
END
$$;

-- Records that arrive after an erasure, or weeks later from a dead-letter queue, bring nothing back. A trigger, so
-- that it covers every writer: server, log writer and older versions.
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
    -- From before the end of the erasure, with five seconds for clock skew. Later ones belong to a tenant that starts
    -- over.
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
    -- Messages of the conversation are stored separately, shortly before or after the record.
    PERFORM pg_advisory_xact_lock(vectorforge.query_lock(NEW.id));
    INSERT INTO vectorforge.tombstones (tenant_id, erased_id, erasure_id)
    VALUES (NEW.tenant_id, NEW.id, becomes.erasure_id) ON CONFLICT DO NOTHING;
    PERFORM vectorforge.erase_messages(NEW.tenant_id, ARRAY[NEW.id]);
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

-- An answer that arrives after its documents have changed is useless, and may quote erased content.
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

-- Start an erasure of the entered tenant, or join the one that is running for the same target. NULL: no such target.
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
        -- A key of S3 cannot tell a slash in a name from its separators.
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
        -- Work that workers would claim, in a tenant that they cannot enter.
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

-- Finish an erasure: store the certificate, delete the names of files, and open the tenant again. False: it was
-- finished before.
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
