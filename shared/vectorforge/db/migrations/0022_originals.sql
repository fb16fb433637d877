-- Files that documents were made of, for download and page images; docs/use/sources.md.
SET LOCAL ROLE vectorforge_migrator;

ALTER TABLE vectorforge.collections ADD COLUMN keep_originals boolean NOT NULL DEFAULT true;

-- A row is deleted with its document, and with it the file: here, or in a bucket by way of original_removals.
CREATE TABLE vectorforge.originals (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    document_id uuid NOT NULL,
    collection_id uuid NOT NULL,
    -- the document's version that was made of this file; an older one is not served
    version int NOT NULL,
    size_bytes int NOT NULL,
    sha256 bytea NOT NULL CHECK (octet_length(sha256) = 32),
    content bytea,
    -- <tenant, percent-encoded>/<document>/<random>, in the bucket of originals
    object_key text,
    PRIMARY KEY (tenant_id, document_id),
    CHECK ((content IS NULL) <> (object_key IS NULL)),
    FOREIGN KEY (tenant_id, collection_id, document_id)
        REFERENCES vectorforge.documents (tenant_id, collection_id, id) ON DELETE CASCADE
);
CREATE INDEX originals_by_document ON vectorforge.originals (tenant_id, collection_id, document_id);
-- most files are compressed already
ALTER TABLE vectorforge.originals ALTER COLUMN content SET STORAGE EXTERNAL;

-- Objects to delete from the bucket: those of deleted rows at once; those that are being written after a day, in case
-- their writer was killed.
CREATE TABLE vectorforge.original_removals (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    object_key text NOT NULL,
    due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, object_key)
);
CREATE INDEX original_removals_by_time ON vectorforge.original_removals (due_at);

SELECT vectorforge.enable_tenant_isolation('originals'), vectorforge.enable_tenant_isolation('original_removals');
CREATE POLICY keeper ON vectorforge.original_removals TO vectorforge_migrator USING (true);  -- for the trigger
GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.originals, vectorforge.original_removals TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.originals, vectorforge.original_removals TO vectorforge_eraser;

CREATE FUNCTION vectorforge.remove_original() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO vectorforge.original_removals (tenant_id, object_key) VALUES (OLD.tenant_id, OLD.object_key)
    ON CONFLICT (tenant_id, object_key) DO UPDATE SET due_at = clock_timestamp();
    RETURN NULL;
END
$$;
CREATE TRIGGER remove_deleted AFTER DELETE ON vectorforge.originals
    FOR EACH ROW WHEN (OLD.object_key IS NOT NULL) EXECUTE FUNCTION vectorforge.remove_original();
CREATE TRIGGER remove_replaced AFTER UPDATE ON vectorforge.originals
    FOR EACH ROW WHEN (OLD.object_key IS DISTINCT FROM NEW.object_key AND OLD.object_key IS NOT NULL)
    EXECUTE FUNCTION vectorforge.remove_original();

-- For workers, across tenants: a tenant with objects to delete.
CREATE POLICY dispatcher ON vectorforge.original_removals FOR SELECT TO vectorforge_dispatcher USING (true);
GRANT SELECT (tenant_id, due_at) ON vectorforge.original_removals TO vectorforge_dispatcher;
CREATE FUNCTION vectorforge.tenant_with_removals() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.tenant_id FROM vectorforge.original_removals AS r
    WHERE r.due_at <= clock_timestamp() ORDER BY r.due_at LIMIT 1
$$;
GRANT EXECUTE ON FUNCTION vectorforge.tenant_with_removals() TO vectorforge_app;
SELECT vectorforge.set_function_owner('vectorforge.tenant_with_removals()', 'vectorforge_dispatcher');
