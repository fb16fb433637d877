-- Ingestion jobs with the documents they still have to read.
SET LOCAL ROLE vectorforge_migrator;

CREATE TABLE vectorforge.ingestion_jobs (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    id uuid NOT NULL,
    collection_id uuid NOT NULL,
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
    -- claims since a document last came to an end, so that a job that stops every worker ends, too
    claims int NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    finished_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, collection_id) REFERENCES vectorforge.collections (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX ingestion_jobs_by_collection ON vectorforge.ingestion_jobs (tenant_id, collection_id, created_at);
CREATE INDEX ingestion_jobs_by_time ON vectorforge.ingestion_jobs (tenant_id, created_at);
CREATE INDEX ingestion_jobs_open ON vectorforge.ingestion_jobs (tenant_id, status)
    WHERE status IN ('queued', 'running');
CREATE INDEX ingestion_jobs_by_claim ON vectorforge.ingestion_jobs (tenant_id, last_claimed_at);

CREATE TABLE vectorforge.ingestion_job_items (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    job_id uuid NOT NULL,
    ordinal int NOT NULL CHECK (ordinal >= 0),
    source text NOT NULL,
    parent_source text,
    media_type text,
    title text,
    metadata jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(metadata) = 'object'),
    -- kept until the item is finished, so that a killed server loses nothing
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

DO $$
DECLARE
    table_name text;
BEGIN
    FOREACH table_name IN ARRAY ARRAY['ingestion_jobs', 'ingestion_job_items'] LOOP
        EXECUTE format('ALTER TABLE vectorforge.%I ENABLE ROW LEVEL SECURITY', table_name);
        EXECUTE format('ALTER TABLE vectorforge.%I FORCE ROW LEVEL SECURITY', table_name);
        EXECUTE format(
            'CREATE POLICY tenant ON vectorforge.%I '
            'USING (tenant_id = NULLIF(current_setting(''vectorforge.tenant'', true), ''''))', table_name
        );
        EXECUTE format(
            'GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.%I TO vectorforge_app', table_name
        );
        EXECUTE format('GRANT SELECT, DELETE ON vectorforge.%I TO vectorforge_eraser', table_name);
    END LOOP;
END
$$;

-- A worker serves every tenant, so it asks for its next job as a role that sees that there is one, and no more.
CREATE POLICY dispatcher ON vectorforge.ingestion_jobs TO vectorforge_dispatcher USING (true);
CREATE POLICY dispatcher ON vectorforge.ingestion_job_items TO vectorforge_dispatcher USING (true);
GRANT SELECT (tenant_id, id, collection_id, status, lease_expires_at, last_claimed_at, claims, created_at, started_at),
      UPDATE (status, lease_expires_at, last_claimed_at, claims, started_at)
    ON vectorforge.ingestion_jobs TO vectorforge_dispatcher;
GRANT SELECT (tenant_id, job_id, status), UPDATE (status)
    ON vectorforge.ingestion_job_items TO vectorforge_dispatcher;

-- The tenant with the fewest running jobs comes first, then the one that waited longest since its last turn, so that a
-- long queue of one does not starve the others. Jobs of one collection take turns, the oldest first: of two versions of
-- a document, the one sent later stays.
CREATE FUNCTION vectorforge.claim_ingestion_job(lease interval)
RETURNS TABLE (claimed_tenant_id text, claimed_job_id uuid, claims_without_progress int)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF lease IS NULL OR lease <= interval '0' OR lease > interval '1 day' THEN
        RAISE EXCEPTION 'lease out of range' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT job.tenant_id, job.id INTO claimed_tenant_id, claimed_job_id
    FROM vectorforge.ingestion_jobs AS job
    JOIN (
        SELECT waiting.tenant_id, count(*) FILTER (WHERE waiting.status = 'running') AS running, (
            SELECT max(turn.last_claimed_at) FROM vectorforge.ingestion_jobs AS turn
            WHERE turn.tenant_id = waiting.tenant_id
        ) AS last_turn
        FROM vectorforge.ingestion_jobs AS waiting
        WHERE waiting.status IN ('queued', 'running')
        GROUP BY waiting.tenant_id
    ) AS tenant ON tenant.tenant_id = job.tenant_id
    WHERE (
        job.status = 'queued' OR (job.status = 'running' AND job.lease_expires_at < clock_timestamp())
    ) AND NOT EXISTS (
        SELECT FROM vectorforge.ingestion_jobs AS older
        WHERE older.tenant_id = job.tenant_id AND older.collection_id = job.collection_id
          AND older.status IN ('queued', 'running')
          AND (older.created_at, older.id) < (job.created_at, job.id)
    )
    ORDER BY tenant.running, tenant.last_turn NULLS FIRST, job.created_at, job.id
    LIMIT 1
    FOR UPDATE OF job SKIP LOCKED;
    IF NOT FOUND THEN
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
    -- what a killed worker left behind
    UPDATE vectorforge.ingestion_job_items SET status = 'queued'
    WHERE tenant_id = claimed_tenant_id AND job_id = claimed_job_id AND status = 'running';
    RETURN NEXT;
END
$$;
-- Whether somebody else's job could be claimed now: then a worker gives its own back after a document.
CREATE FUNCTION vectorforge.other_tenants_wait(tenant text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (
        SELECT FROM vectorforge.ingestion_jobs AS job
        WHERE job.tenant_id <> tenant
          AND (job.status = 'queued' OR (job.status = 'running' AND job.lease_expires_at < clock_timestamp()))
          AND NOT EXISTS (
              SELECT FROM vectorforge.ingestion_jobs AS older
              WHERE older.tenant_id = job.tenant_id AND older.collection_id = job.collection_id
                AND older.status IN ('queued', 'running')
                AND (older.created_at, older.id) < (job.created_at, job.id)
          )
    )
$$;
GRANT EXECUTE ON FUNCTION vectorforge.claim_ingestion_job(interval) TO vectorforge_app;
GRANT EXECUTE ON FUNCTION vectorforge.other_tenants_wait(text) TO vectorforge_app;
GRANT CREATE ON SCHEMA vectorforge TO vectorforge_dispatcher;
ALTER FUNCTION vectorforge.claim_ingestion_job(interval) OWNER TO vectorforge_dispatcher;
ALTER FUNCTION vectorforge.other_tenants_wait(text) OWNER TO vectorforge_dispatcher;
REVOKE CREATE ON SCHEMA vectorforge FROM vectorforge_dispatcher;
