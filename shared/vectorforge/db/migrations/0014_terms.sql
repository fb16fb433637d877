-- The words of every passage, for BM25 in plain PostgreSQL: no extension that RDS lacks.
SET LOCAL ROLE vectorforge_migrator;

ALTER TABLE vectorforge.collections
    ADD COLUMN search_mode text NOT NULL DEFAULT 'hybrid' CHECK (search_mode IN ('hybrid', 'dense', 'lexical')),
    -- of the score by vector; the score by words has the rest
    ADD COLUMN dense_weight double precision NOT NULL DEFAULT 0.5 CHECK (dense_weight BETWEEN 0 AND 1),
    -- a text search configuration of PostgreSQL: how words are stemmed, and which are left out
    ADD COLUMN language text NOT NULL DEFAULT 'english' CHECK (char_length(language) BETWEEN 1 AND 63),
    -- Stands for tenant and collection in every posting, where their 36 bytes would double its size. An identity: nobody
    -- can take another's. This rewrites the table, which has a row a collection: milliseconds.
    -- squawk-ignore adding-field-with-default, disallowed-unique-constraint
    ADD COLUMN term_scope int NOT NULL GENERATED ALWAYS AS IDENTITY UNIQUE,
    -- words of all passages, repetitions included: their mean is a part of BM25
    ADD COLUMN term_count bigint NOT NULL DEFAULT 0,
    -- false: passages from before this table are still to be read
    ADD COLUMN terms_complete boolean NOT NULL DEFAULT false,
    -- while they are: the document up to which they were, in the order of ids
    ADD COLUMN terms_cursor uuid,
    -- the partition of the embeddings; NULL: that of metric and dimension
    ADD COLUMN space text;
ALTER TABLE vectorforge.collections ALTER COLUMN terms_complete SET DEFAULT true;
-- The doors of profiles search by vectors, and the others find the same. Of all tenants, so past the policies.
ALTER TABLE vectorforge.collections NO FORCE ROW LEVEL SECURITY;
UPDATE vectorforge.collections SET search_mode = 'dense' WHERE by_profile;
ALTER TABLE vectorforge.collections FORCE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.documents ADD COLUMN term_count bigint NOT NULL DEFAULT 0;

-- A hash of our own: hashtext() may differ between versions of PostgreSQL. 32 bits: two words of a question meet
-- once in 10^8 questions.
-- Neither STRICT nor with a search_path of its own, which RETURN needs not: so it is inlined, and 15 times as fast.
CREATE FUNCTION vectorforge.term_hash(lexeme text) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ('x' || substr(md5(lexeme), 1, 8))::bit(32)::int;

-- What a passage holds, so that its postings can be found again.
CREATE TABLE vectorforge.chunk_terms (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    chunk_id uuid NOT NULL,
    collection_id uuid NOT NULL,
    document_id uuid NOT NULL,
    scope int NOT NULL,
    -- by which they were read; another than the collection's: they are still to be read by that
    language text NOT NULL,
    terms int[] NOT NULL,
    length int NOT NULL,
    PRIMARY KEY (tenant_id, chunk_id),
    FOREIGN KEY (tenant_id, collection_id, document_id)
        REFERENCES vectorforge.documents (tenant_id, collection_id, id) ON DELETE CASCADE
);
CREATE INDEX chunk_terms_by_document ON vectorforge.chunk_terms (tenant_id, collection_id, document_id);

-- One row for each word of each passage. Frequency and length, not the weight made of them: the mean length changes
-- with every passage.
CREATE TABLE vectorforge.postings (
    scope int NOT NULL,
    term int NOT NULL,
    chunk_id uuid NOT NULL,
    -- squawk-ignore prefer-bigint-over-smallint -- written with least(..., 32767)
    frequency smallint NOT NULL,
    -- squawk-ignore prefer-bigint-over-smallint -- as well
    length smallint NOT NULL,
    PRIMARY KEY (scope, term, chunk_id) INCLUDE (frequency, length)
);

ALTER TABLE vectorforge.chunk_terms ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.chunk_terms FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vectorforge.chunk_terms
    USING (tenant_id = NULLIF(current_setting('vectorforge.tenant', true), ''));
ALTER TABLE vectorforge.postings ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.postings FORCE ROW LEVEL SECURITY;
-- The collections that the policy sees are those of the tenant; they are read once a statement.
CREATE POLICY tenant ON vectorforge.postings FOR SELECT
    USING (scope = ANY (ARRAY(SELECT c.term_scope FROM vectorforge.collections AS c)));
-- Only the triggers below write, as the owner: also when the collection is gone already.
CREATE POLICY keeper ON vectorforge.postings TO vectorforge_migrator USING (true);
GRANT SELECT ON vectorforge.chunk_terms, vectorforge.postings TO vectorforge_app, vectorforge_eraser;
GRANT EXECUTE ON FUNCTION vectorforge.term_hash(text) TO vectorforge_app;

-- Reads the words of passages: title and heading are read with the text, as they are embedded with it. A word of the
-- title counts three times: docs/retrieval.md has the measurement.
CREATE FUNCTION vectorforge.add_terms(tenant text, chunk_ids uuid[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    WITH read AS (
        SELECT f.id, f.collection_id, f.document_id, c.term_scope, c.language, to_tsvector(
            c.language::regconfig, left(concat_ws(E'\n', d.title, d.title, d.title, f.heading, f.text), 200000)
        ) AS words
        FROM vectorforge.chunks AS f
        JOIN vectorforge.documents AS d ON d.tenant_id = f.tenant_id AND d.id = f.document_id
        JOIN vectorforge.collections AS c ON c.tenant_id = f.tenant_id AND c.id = f.collection_id
        WHERE f.tenant_id = tenant AND f.id = ANY (chunk_ids) AND f.to_version IS NULL
    ), counted AS (
        SELECT read.id, vectorforge.term_hash(word.lexeme) AS term, sum(cardinality(word.positions)) AS frequency
        FROM read CROSS JOIN LATERAL unnest(read.words) AS word
        GROUP BY 1, 2
    ), summed AS (
        SELECT read.id, read.collection_id, read.document_id, read.term_scope, read.language,
               coalesce(array_agg(counted.term) FILTER (WHERE counted.term IS NOT NULL), '{}') AS terms,
               coalesce(sum(counted.frequency), 0) AS length
        FROM read LEFT JOIN counted ON counted.id = read.id
        GROUP BY 1, 2, 3, 4, 5
    ), noted AS (
        INSERT INTO vectorforge.chunk_terms
            (tenant_id, chunk_id, collection_id, document_id, scope, language, terms, length)
        SELECT tenant, id, collection_id, document_id, term_scope, language, terms, length FROM summed
        RETURNING chunk_id, scope, length
    )
    INSERT INTO vectorforge.postings (scope, term, chunk_id, frequency, length)
    SELECT noted.scope, counted.term, noted.chunk_id, least(counted.frequency, 32767), least(noted.length, 32767)
    FROM noted JOIN counted ON counted.id = noted.chunk_id
    ORDER BY 1, 2, 3;

    UPDATE vectorforge.documents AS d SET term_count = d.term_count + added.length
    FROM (
        SELECT document_id, sum(length) AS length FROM vectorforge.chunk_terms
        WHERE tenant_id = tenant AND chunk_id = ANY (chunk_ids) GROUP BY 1
    ) AS added
    WHERE d.tenant_id = tenant AND d.id = added.document_id AND added.length > 0;
END
$$;

-- Triggers, so that every writer keeps the words current, also one of the version before.
CREATE FUNCTION vectorforge.add_terms_of_new_chunks() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM vectorforge.add_terms(batch.tenant_id, batch.ids)
    FROM (SELECT tenant_id, array_agg(id) AS ids FROM added GROUP BY 1) AS batch;
    RETURN NULL;
END
$$;
CREATE TRIGGER add_terms AFTER INSERT ON vectorforge.chunks
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION vectorforge.add_terms_of_new_chunks();

CREATE FUNCTION vectorforge.change_terms_of_chunks() RETURNS trigger
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
        WHERE after.to_version IS NULL AND (before.to_version, before.heading, before.text) IS DISTINCT FROM
            (after.to_version, after.heading, after.text)
        GROUP BY 1
    ) AS batch;
    RETURN NULL;
END
$$;
CREATE TRIGGER change_terms AFTER UPDATE ON vectorforge.chunks
    REFERENCING OLD TABLE AS before NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION vectorforge.change_terms_of_chunks();

-- With its document a chunk goes, and by that what is noted of its words; this is for a chunk that goes alone.
CREATE FUNCTION vectorforge.delete_terms_of_chunks() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM vectorforge.chunk_terms AS t
    USING removed WHERE t.tenant_id = removed.tenant_id AND t.chunk_id = removed.id AND removed.to_version IS NULL;
    RETURN NULL;
END
$$;
CREATE TRIGGER delete_terms AFTER DELETE ON vectorforge.chunks
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION vectorforge.delete_terms_of_chunks();

-- The title is read with each passage. Deferred, so that passages that a new title's version replaces are not read
-- again in vain; those of this version have been read with it.
CREATE FUNCTION vectorforge.change_terms_of_document() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kept constant uuid[] := ARRAY(
        SELECT f.id FROM vectorforge.chunks AS f
        WHERE f.tenant_id = NEW.tenant_id AND f.collection_id = NEW.collection_id AND f.document_id = NEW.id
            AND f.to_version IS NULL AND (f.from_version < NEW.version OR NEW.version = OLD.version)
    );
BEGIN
    DELETE FROM vectorforge.chunk_terms WHERE tenant_id = NEW.tenant_id AND chunk_id = ANY (kept);
    PERFORM vectorforge.add_terms(NEW.tenant_id, kept);
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER change_terms AFTER UPDATE ON vectorforge.documents
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (OLD.title IS DISTINCT FROM NEW.title)
    EXECUTE FUNCTION vectorforge.change_terms_of_document();

CREATE FUNCTION vectorforge.delete_postings() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
-- each posting by its key: without statistics the planner would read them all
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_seqscan = off
AS $$
BEGIN
    DELETE FROM vectorforge.postings AS p
    USING (SELECT scope, unnest(terms) AS term, chunk_id FROM removed) AS gone
    WHERE p.scope = gone.scope AND p.term = gone.term AND p.chunk_id = gone.chunk_id;
    UPDATE vectorforge.documents AS d SET term_count = d.term_count - gone.length
    FROM (SELECT tenant_id, document_id, sum(length) AS length FROM removed GROUP BY 1, 2) AS gone
    WHERE d.tenant_id = gone.tenant_id AND d.id = gone.document_id AND gone.length > 0;
    RETURN NULL;
END
$$;
CREATE TRIGGER delete_postings AFTER DELETE ON vectorforge.chunk_terms
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION vectorforge.delete_postings();

-- As in 0002, and the words. That only their number has changed is no change of the documents.
CREATE OR REPLACE FUNCTION vectorforge.count_document() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE vectorforge.collections
    SET data_version = data_version + CASE
            WHEN TG_OP = 'UPDATE' AND NEW.version = OLD.version AND NEW.term_count <> OLD.term_count THEN 0 ELSE 1
        END,
        document_count = document_count + CASE TG_OP WHEN 'INSERT' THEN 1 WHEN 'DELETE' THEN -1 ELSE 0 END,
        chunk_count = chunk_count
            + CASE TG_OP WHEN 'DELETE' THEN 0 ELSE NEW.chunk_count END
            - CASE TG_OP WHEN 'INSERT' THEN 0 ELSE OLD.chunk_count END,
        term_count = term_count
            + CASE TG_OP WHEN 'DELETE' THEN 0 ELSE NEW.term_count END
            - CASE TG_OP WHEN 'INSERT' THEN 0 ELSE OLD.term_count END
    WHERE tenant_id = CASE TG_OP WHEN 'DELETE' THEN OLD.tenant_id ELSE NEW.tenant_id END
      AND id = CASE TG_OP WHEN 'DELETE' THEN OLD.collection_id ELSE NEW.collection_id END;
    RETURN NULL;
END
$$;

-- Reads what is not read yet, or was by another language: at most so many passages of a collection of the tenant.
-- Documents are taken in the order of their ids, which the cursor notes, so that it goes on wherever it ended. One that
-- somebody writes is not waited for: with other documents locked, that could be for each other.
CREATE FUNCTION vectorforge.read_terms(collection uuid, most int, OUT documents int, OUT passages int, OUT state text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    tenant constant text := NULLIF(current_setting('vectorforge.tenant', true), '');
    asked record;
    following uuid[];
    locked uuid[];
    unread uuid[];
    last_begun uuid;
BEGIN
    IF most IS NULL OR most NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'most out of range' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    documents := 0;
    passages := 0;
    state := 'complete';
    SELECT c.language, c.terms_cursor INTO asked FROM vectorforge.collections AS c
    WHERE c.tenant_id = tenant AND c.id = collection AND NOT c.terms_complete;
    IF NOT FOUND THEN
        RETURN;
    END IF;

    following := ARRAY(
        SELECT d.id FROM vectorforge.documents AS d
        WHERE d.tenant_id = tenant AND d.collection_id = collection
            AND d.id > coalesce(asked.terms_cursor, '00000000-0000-0000-0000-000000000000')
        ORDER BY d.id LIMIT 100
    );
    locked := ARRAY(
        SELECT d.id FROM vectorforge.documents AS d
        WHERE d.tenant_id = tenant AND d.id = ANY (following) ORDER BY d.id FOR NO KEY UPDATE SKIP LOCKED
    );
    -- up to the first that somebody writes, or has deleted just now
    locked := ARRAY(
        SELECT d.id FROM unnest(following) WITH ORDINALITY AS d (id, place)
        WHERE d.place < coalesce((
            SELECT min(busy.place) FROM unnest(following) WITH ORDINALITY AS busy (id, place)
            WHERE busy.id <> ALL (locked)
        ), 101) ORDER BY d.place
    );
    IF locked = '{}' AND following <> '{}' THEN
        state := 'busy';
        RETURN;
    END IF;

    SELECT array_agg(f.id), (array_agg(f.document_id ORDER BY f.document_id DESC))[1] INTO unread, last_begun FROM (
        SELECT f.id, f.document_id FROM vectorforge.chunks AS f
        LEFT JOIN vectorforge.chunk_terms AS t
            ON t.tenant_id = f.tenant_id AND t.chunk_id = f.id AND t.language = asked.language
        WHERE f.tenant_id = tenant AND f.collection_id = collection AND f.document_id = ANY (locked)
            AND f.to_version IS NULL AND t.chunk_id IS NULL
        ORDER BY f.document_id LIMIT most
    ) AS f;
    passages := coalesce(cardinality(unread), 0);
    IF passages > 0 THEN
        DELETE FROM vectorforge.chunk_terms WHERE tenant_id = tenant AND chunk_id = ANY (unread);
        PERFORM vectorforge.add_terms(tenant, unread);
    END IF;
    -- the last one may have more
    IF passages = most THEN
        locked := ARRAY(SELECT d.id FROM unnest(locked) AS d (id) WHERE d.id < last_begun ORDER BY d.id);
    END IF;

    documents := cardinality(locked);
    state := CASE WHEN following = '{}' THEN 'complete' ELSE 'more' END;
    -- unless the language has changed again: then all begins anew
    UPDATE vectorforge.collections AS c
    SET terms_cursor = CASE WHEN following <> '{}' THEN coalesce(locked[documents], c.terms_cursor) END,
        terms_complete = following = '{}',
        data_version = c.data_version + (following = '{}')::int
    WHERE c.tenant_id = tenant AND c.id = collection AND c.language = asked.language AND NOT c.terms_complete
        AND c.terms_cursor IS NOT DISTINCT FROM asked.terms_cursor;
    IF NOT FOUND THEN
        state := 'more';
    END IF;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.read_terms(uuid, int) TO vectorforge_app;

-- A worker serves every tenant, so it asks as a role that sees where there is something to read, and no more.
CREATE POLICY dispatcher ON vectorforge.collections TO vectorforge_dispatcher USING (true);
GRANT SELECT (tenant_id, id, document_count, terms_complete) ON vectorforge.collections TO vectorforge_dispatcher;
CREATE FUNCTION vectorforge.unread_collections() RETURNS TABLE (tenant_id text, id uuid, document_count bigint)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT c.tenant_id, c.id, c.document_count FROM vectorforge.collections AS c
    WHERE NOT c.terms_complete ORDER BY c.tenant_id, c.id LIMIT 1000
$$;
GRANT EXECUTE ON FUNCTION vectorforge.unread_collections() TO vectorforge_app;
GRANT CREATE ON SCHEMA vectorforge TO vectorforge_dispatcher;
ALTER FUNCTION vectorforge.unread_collections() OWNER TO vectorforge_dispatcher;
REVOKE CREATE ON SCHEMA vectorforge FROM vectorforge_dispatcher;
