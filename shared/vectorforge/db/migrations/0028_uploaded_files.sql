-- Files of OpenAI's /v1/files, and metadata of vector stores: docs/use/openai-files.md.
SET LOCAL ROLE vectorforge_migrator;

-- pairs of strings that clients of vector stores set
ALTER TABLE vectorforge.collections ADD COLUMN metadata jsonb NOT NULL DEFAULT '{}';

-- Files that were uploaded to be attached to a vector store. Attached, a file is an item of a job, which reads its content
-- here, and then the document with the file's id. The row is deleted with the document or the job.
CREATE TABLE vectorforge.uploaded_files (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    id uuid NOT NULL,
    filename text NOT NULL CHECK (char_length(filename) BETWEEN 1 AND 200),
    purpose text NOT NULL CHECK (purpose IN ('assistants', 'user_data')),
    media_type text CHECK (char_length(media_type) <= 200),
    size_bytes int NOT NULL CHECK (size_bytes >= 0),
    -- NULL: the item of the job has ended
    content bytea,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- NULL: attached
    expires_at timestamptz,
    collection_id uuid,
    -- the future document's, which is the file's own; NULL: not attached
    document_id uuid,
    job_id uuid,
    ordinal int,
    -- the document's: the filename, or with the id in front if the collection has another document of this name
    source text CHECK (char_length(source) <= 300),
    PRIMARY KEY (tenant_id, id),
    CHECK ((expires_at IS NULL) = (job_id IS NOT NULL) AND (content IS NOT NULL OR job_id IS NOT NULL)),
    CHECK (job_id IS NULL OR (document_id = id AND collection_id IS NOT NULL AND source IS NOT NULL)),
    FOREIGN KEY (tenant_id, job_id) REFERENCES vectorforge.ingestion_jobs (tenant_id, id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX uploaded_files_by_source ON vectorforge.uploaded_files (tenant_id, collection_id, source);
CREATE INDEX uploaded_files_by_job ON vectorforge.uploaded_files (tenant_id, job_id, ordinal);
CREATE INDEX uploaded_files_by_expiry ON vectorforge.uploaded_files (expires_at);
-- most files are compressed already
ALTER TABLE vectorforge.uploaded_files ALTER COLUMN content SET STORAGE EXTERNAL;

SELECT vectorforge.enable_tenant_isolation('uploaded_files');
GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.uploaded_files TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.uploaded_files TO vectorforge_eraser;

-- An item with an empty content may be a file's, whose content is not needed any more when the item ends.
CREATE FUNCTION vectorforge.empty_file() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE vectorforge.uploaded_files AS f SET content = NULL
    WHERE f.tenant_id = NEW.tenant_id AND f.job_id = NEW.job_id AND f.ordinal = NEW.ordinal;
    RETURN NULL;
END
$$;
CREATE TRIGGER empty_file AFTER UPDATE ON vectorforge.ingestion_job_items
    FOR EACH ROW WHEN (
        OLD.content = '' AND OLD.status IN ('queued', 'running') AND NEW.status NOT IN ('queued', 'running')
    )
    EXECUTE FUNCTION vectorforge.empty_file();

-- Delete expired files across tenants; a bounded number in one call.
CREATE POLICY dispatcher ON vectorforge.uploaded_files TO vectorforge_dispatcher USING (true);
GRANT SELECT (tenant_id, id, expires_at), DELETE ON vectorforge.uploaded_files TO vectorforge_dispatcher;
CREATE FUNCTION vectorforge.delete_expired_files() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    deleted bigint;
BEGIN
    DELETE FROM vectorforge.uploaded_files WHERE (tenant_id, id) IN (
        SELECT old.tenant_id, old.id FROM vectorforge.uploaded_files AS old
        WHERE old.expires_at < clock_timestamp() LIMIT 100
    );
    GET DIAGNOSTICS deleted = ROW_COUNT;
    RETURN deleted;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.delete_expired_files() TO vectorforge_app;
SELECT vectorforge.set_function_owner('vectorforge.delete_expired_files()', 'vectorforge_dispatcher');
