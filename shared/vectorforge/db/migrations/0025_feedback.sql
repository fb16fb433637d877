-- Ratings of answers; docs/use/feedback.md.
SET LOCAL ROLE vectorforge_migrator;

-- One row for each principal and query, deleted with the row of the query log.
CREATE TABLE vectorforge.query_feedback (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    query_id uuid NOT NULL,
    -- as logs name it
    credential text NOT NULL CHECK (char_length(credential) <= 512),
    rating text NOT NULL CHECK (rating IN ('up', 'down')),
    reasons text[] NOT NULL DEFAULT '{}' CHECK (cardinality(reasons) <= 10),
    comment text NOT NULL DEFAULT '' CHECK (char_length(comment) <= 2000),
    -- ids of chunks that should have been cited; the chunks may be deleted since
    should_cite uuid[] NOT NULL DEFAULT '{}' CHECK (cardinality(should_cite) <= 20),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, query_id, credential),
    FOREIGN KEY (tenant_id, query_id) REFERENCES vectorforge.query_logs (tenant_id, id) ON DELETE CASCADE
);

SELECT vectorforge.enable_tenant_isolation('query_feedback');
CREATE POLICY keeper ON vectorforge.query_feedback TO vectorforge_migrator USING (true);  -- for the trigger
GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.query_feedback TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.query_feedback TO vectorforge_eraser;

-- Comments may quote the answer, so they are emptied with the texts of the query log, by erasure and retention ...
CREATE FUNCTION vectorforge.empty_comments() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE vectorforge.query_feedback AS f SET comment = ''
    WHERE f.tenant_id = NEW.tenant_id AND f.query_id = NEW.id AND f.comment <> '';
    RETURN NULL;
END
$$;
CREATE TRIGGER empty_comments AFTER UPDATE ON vectorforge.query_logs
    FOR EACH ROW WHEN (NEW.text_erased_at IS NOT NULL AND OLD.text_erased_at IS NULL)
    EXECUTE FUNCTION vectorforge.empty_comments();

-- ... and are not stored after that, nor by a transaction that runs beside it. As the owner: the lock needs its rights.
CREATE FUNCTION vectorforge.refuse_erased_comment() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM vectorforge.query_logs AS l
    WHERE l.tenant_id = NEW.tenant_id AND l.id = NEW.query_id AND l.text_erased_at IS NULL FOR SHARE;
    IF NOT FOUND THEN
        NEW.comment := '';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER refuse_erased BEFORE INSERT OR UPDATE ON vectorforge.query_feedback
    FOR EACH ROW WHEN (NEW.comment <> '') EXECUTE FUNCTION vectorforge.refuse_erased_comment();
