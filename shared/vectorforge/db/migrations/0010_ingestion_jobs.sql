-- Ingestion jobs, their documents, and how workers claim them.
SET LOCAL ROLE vectorforge_migrator;

CREATE TABLE vectorforge.ingestion_jobs (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    id uuid NOT NULL,
    collection_id uuid NOT NULL,
    -- source_key() of the only document or file; NULL: any documents of the collection
    source_key bytea,
    status text NOT NULL DEFAULT 'queued'
        CHECK (status IN ('queued', 'running', 'succeeded', 'partial', 'failed')),
    stage text,
    documents_total int NOT NULL,
    documents_done int NOT NULL DEFAULT 0,
    documents_failed int NOT NULL DEFAULT 0,
    chunks_added int NOT NULL DEFAULT 0,
    chunks_kept int NOT NULL DEFAULT 0,
    chunks_removed int NOT NULL DEFAULT 0,
    error_code text,
    error_message text,
    lease_expires_at timestamptz,
    last_claimed_at timestamptz,
    -- claims since a document was last finished, so that a job that crashes every worker is given up
    claims int NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    finished_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, collection_id) REFERENCES vectorforge.collections (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX ingestion_jobs_by_collection ON vectorforge.ingestion_jobs (tenant_id, collection_id, created_at);
CREATE INDEX ingestion_jobs_by_time ON vectorforge.ingestion_jobs (tenant_id, created_at);
CREATE INDEX ingestion_jobs_by_claim ON vectorforge.ingestion_jobs (tenant_id, last_claimed_at);
-- the next job of a tenant, without reading those behind it
CREATE INDEX ingestion_jobs_open_by_time ON vectorforge.ingestion_jobs (tenant_id, created_at, id)
    WHERE status IN ('queued', 'running');
-- what a job may wait for: any older job of its collection, one of any documents, or one of the same document
CREATE INDEX ingestion_jobs_open_by_collection
    ON vectorforge.ingestion_jobs (tenant_id, collection_id, created_at, id)
    WHERE status IN ('queued', 'running');
CREATE INDEX ingestion_jobs_open_of_any_source
    ON vectorforge.ingestion_jobs (tenant_id, collection_id, created_at, id)
    WHERE status IN ('queued', 'running') AND source_key IS NULL;
CREATE INDEX ingestion_jobs_open_by_source
    ON vectorforge.ingestion_jobs (tenant_id, collection_id, source_key, created_at, id)
    WHERE status IN ('queued', 'running') AND source_key IS NOT NULL;

-- The documents of a job, with their content until they are finished.
CREATE TABLE vectorforge.ingestion_job_items (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    job_id uuid NOT NULL,
    ordinal int NOT NULL CHECK (ordinal >= 0),
    source text NOT NULL,
    parent_source text,
    media_type text,
    title text,
    metadata jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(metadata) = 'object'),
    -- stored until the item is finished, so that a killed server loses nothing
    content bytea,
    status text NOT NULL DEFAULT 'queued'
        CHECK (status IN ('queued', 'running', 'succeeded', 'unchanged', 'failed')),
    stage text,
    attempts int NOT NULL DEFAULT 0,
    error_code text,
    error_message text,
    document_id uuid,
    warnings text[] NOT NULL DEFAULT '{}',
    chunks_added int NOT NULL DEFAULT 0,
    chunks_kept int NOT NULL DEFAULT 0,
    chunks_removed int NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, job_id, ordinal),
    CHECK (status NOT IN ('queued', 'running') OR content IS NOT NULL),
    FOREIGN KEY (tenant_id, job_id) REFERENCES vectorforge.ingestion_jobs (tenant_id, id) ON DELETE CASCADE
);
-- A client that has uploaded a file looks up the job of its document. Hash indexes, because a source may be longer than
-- an entry of a btree.
CREATE INDEX ingestion_job_items_by_source ON vectorforge.ingestion_job_items USING hash (source);
CREATE INDEX ingestion_job_items_by_parent ON vectorforge.ingestion_job_items USING hash (parent_source)
    WHERE parent_source IS NOT NULL;

SELECT vectorforge.enable_tenant_isolation('ingestion_jobs'),
    vectorforge.enable_tenant_isolation('ingestion_job_items');
GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.ingestion_jobs, vectorforge.ingestion_job_items
    TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.ingestion_jobs, vectorforge.ingestion_job_items TO vectorforge_eraser;

-- A worker serves every tenant, so it claims its next job through a role that sees that there is one, and nothing of
-- its content. delete_old_logs() deletes finished jobs.
CREATE POLICY dispatcher ON vectorforge.ingestion_jobs TO vectorforge_dispatcher USING (true);
CREATE POLICY dispatcher ON vectorforge.ingestion_job_items TO vectorforge_dispatcher USING (true);
GRANT SELECT (tenant_id, id, collection_id, source_key, status, lease_expires_at, last_claimed_at, claims, created_at,
              started_at, finished_at),
      UPDATE (status, lease_expires_at, last_claimed_at, claims, started_at),
      DELETE
    ON vectorforge.ingestion_jobs TO vectorforge_dispatcher;
GRANT SELECT (tenant_id, job_id, status), UPDATE (status)
    ON vectorforge.ingestion_job_items TO vectorforge_dispatcher;

-- True if an older job of the collection must finish first. Jobs of one document or file each run in parallel, unless
-- it is the same one: of two versions of a document, the later one must win. A job of several documents runs after
-- every older and before every younger job of its collection. A function of its own, because the planner would make a
-- join of it, which compares every job with every other. Without a search_path, which would cost more than the two
-- index scans; every name is qualified. It looks for the youngest of the older jobs, because a scan from the oldest
-- passes all that have finished since the last vacuum.
CREATE FUNCTION vectorforge.waits_behind_another(tenant text, collection uuid, key bytea, created timestamptz, job uuid)
RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF key IS NULL THEN
        PERFORM FROM vectorforge.ingestion_jobs
        WHERE tenant_id = tenant AND collection_id = collection AND status IN ('queued', 'running')
          AND (created_at, id) < (created, job)
        ORDER BY created_at DESC, id DESC LIMIT 1;
        RETURN FOUND;
    END IF;
    PERFORM FROM vectorforge.ingestion_jobs
    WHERE tenant_id = tenant AND collection_id = collection AND status IN ('queued', 'running')
      AND source_key = key AND (created_at, id) < (created, job)
    ORDER BY created_at DESC, id DESC LIMIT 1;
    IF FOUND THEN
        RETURN true;
    END IF;
    PERFORM FROM vectorforge.ingestion_jobs
    WHERE tenant_id = tenant AND collection_id = collection AND status IN ('queued', 'running')
      AND source_key IS NULL AND (created_at, id) < (created, job)
    ORDER BY created_at DESC, id DESC LIMIT 1;
    RETURN FOUND;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.waits_behind_another(text, uuid, bytea, timestamptz, uuid)
    TO vectorforge_app, vectorforge_dispatcher;

-- The tenant with the fewest running jobs comes first, then the one with the longest time since its last claim, so that
-- one tenant's long queue does not starve the others. The first tenant with a job that may run gets the claim.
CREATE FUNCTION vectorforge.claim_ingestion_job(lease interval)
RETURNS TABLE (claimed_tenant_id text, claimed_job_id uuid, claims_without_progress int)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    candidate text;
BEGIN
    IF lease IS NULL OR lease <= interval '0' OR lease > interval '1 day' THEN
        RAISE EXCEPTION 'lease must be between 0 and 1 day' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR candidate IN
        SELECT waiting.tenant_id FROM vectorforge.ingestion_jobs AS waiting
        WHERE waiting.status IN ('queued', 'running')
        GROUP BY waiting.tenant_id
        ORDER BY count(*) FILTER (WHERE waiting.status = 'running'), (
            SELECT max(turn.last_claimed_at) FROM vectorforge.ingestion_jobs AS turn
            WHERE turn.tenant_id = waiting.tenant_id
        ) NULLS FIRST, min(waiting.created_at)
    LOOP
        SELECT job.tenant_id, job.id INTO claimed_tenant_id, claimed_job_id
        FROM vectorforge.ingestion_jobs AS job
        WHERE job.tenant_id = candidate AND job.status IN ('queued', 'running')
          AND (job.status = 'queued' OR job.lease_expires_at < clock_timestamp())
          AND NOT vectorforge.waits_behind_another(
              job.tenant_id, job.collection_id, job.source_key, job.created_at, job.id
          )
        ORDER BY job.created_at, job.id
        LIMIT 1
        FOR UPDATE OF job SKIP LOCKED;
        EXIT WHEN FOUND;
    END LOOP;
    IF claimed_job_id IS NULL THEN
        RETURN;
    END IF;
    UPDATE vectorforge.ingestion_jobs
    SET status = 'running',
        lease_expires_at = clock_timestamp() + lease,
        last_claimed_at = clock_timestamp(),
        claims = claims + 1,
        started_at = coalesce(started_at, clock_timestamp())
    WHERE tenant_id = claimed_tenant_id AND id = claimed_job_id
    RETURNING claims INTO claims_without_progress;
    -- items of a killed worker
    UPDATE vectorforge.ingestion_job_items SET status = 'queued'
    WHERE tenant_id = claimed_tenant_id AND job_id = claimed_job_id AND status = 'running';
    RETURN NEXT;
END
$$;

-- True if another tenant's job could be claimed now: then a worker releases its own job after a document.
CREATE FUNCTION vectorforge.other_tenants_wait(tenant text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (
        SELECT FROM vectorforge.ingestion_jobs AS job
        WHERE job.tenant_id <> tenant AND job.status IN ('queued', 'running')
          AND (job.status = 'queued' OR job.lease_expires_at < clock_timestamp())
          AND NOT vectorforge.waits_behind_another(
              job.tenant_id, job.collection_id, job.source_key, job.created_at, job.id
          )
    )
$$;
GRANT EXECUTE ON FUNCTION vectorforge.claim_ingestion_job(interval), vectorforge.other_tenants_wait(text)
    TO vectorforge_app;
SELECT vectorforge.set_function_owner('vectorforge.claim_ingestion_job(interval)', 'vectorforge_dispatcher'),
    vectorforge.set_function_owner('vectorforge.other_tenants_wait(text)', 'vectorforge_dispatcher');
