-- Collections that are searched by vectors only need not keep words, which take most of the time of storing a passage.
SET LOCAL ROLE vectorforge_migrator;

-- false: words of new passages are not read. A search mode that needs them makes it true, and a worker reads them all.
ALTER TABLE vectorforge.collections ADD COLUMN keeps_words boolean NOT NULL DEFAULT true;

-- These three as in 0014, for collections that keep words.
CREATE OR REPLACE FUNCTION vectorforge.add_terms_of_new_chunks() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM vectorforge.add_terms(batch.tenant_id, batch.ids)
    FROM (
        SELECT tenant_id, array_agg(id) AS ids FROM added
        WHERE (tenant_id, collection_id) IN (
            SELECT c.tenant_id, c.id FROM vectorforge.collections AS c
            WHERE c.keeps_words AND (c.tenant_id, c.id) IN (SELECT DISTINCT tenant_id, collection_id FROM added)
        )
        GROUP BY 1
    ) AS batch;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION vectorforge.change_terms_of_chunks() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM vectorforge.chunk_terms AS t
    USING before JOIN after ON after.tenant_id = before.tenant_id AND after.id = before.id
    WHERE t.tenant_id = before.tenant_id AND t.chunk_id = before.id
        AND (before.to_version, before.heading, before.text) IS DISTINCT FROM
            (after.to_version, after.heading, after.text);
    PERFORM vectorforge.add_terms(batch.tenant_id, batch.ids)
    FROM (
        SELECT after.tenant_id, array_agg(after.id) AS ids
        FROM before JOIN after ON after.tenant_id = before.tenant_id AND after.id = before.id
        JOIN vectorforge.collections AS c ON c.tenant_id = after.tenant_id AND c.id = after.collection_id
        WHERE c.keeps_words AND after.to_version IS NULL
            AND (before.to_version, before.heading, before.text) IS DISTINCT FROM
                (after.to_version, after.heading, after.text)
        GROUP BY 1
    ) AS batch;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION vectorforge.change_terms_of_document() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kept constant uuid[] := ARRAY(
        SELECT f.id FROM vectorforge.chunks AS f
        JOIN vectorforge.collections AS c ON c.tenant_id = f.tenant_id AND c.id = f.collection_id
        WHERE c.keeps_words AND f.tenant_id = NEW.tenant_id AND f.collection_id = NEW.collection_id
            AND f.document_id = NEW.id AND f.to_version IS NULL
            AND (f.from_version < NEW.version OR NEW.version = OLD.version)
    );
BEGIN
    DELETE FROM vectorforge.chunk_terms WHERE tenant_id = NEW.tenant_id AND chunk_id = ANY (kept);
    PERFORM vectorforge.add_terms(NEW.tenant_id, kept);
    RETURN NULL;
END
$$;
