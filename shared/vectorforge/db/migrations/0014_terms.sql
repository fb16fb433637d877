-- The words of every passage, for BM25 in plain PostgreSQL: no extension that RDS lacks.
SET LOCAL ROLE vectorforge_migrator;

ALTER TABLE vectorforge.collections
    ADD COLUMN search_mode text NOT NULL DEFAULT 'hybrid' CHECK (search_mode IN ('hybrid', 'dense', 'lexical')),
    -- of the score by vector; the score by words has the rest
    ADD COLUMN dense_weight double precision NOT NULL DEFAULT 0.5 CHECK (dense_weight BETWEEN 0 AND 1),
    -- a text search configuration of PostgreSQL: how words are stemmed, and which are left out
    ADD COLUMN language text NOT NULL DEFAULT 'english' CHECK (char_length(language) BETWEEN 1 AND 63),
    -- stands for tenant and collection in every posting, where their 36 bytes would double its size
    ADD COLUMN term_scope int NOT NULL GENERATED ALWAYS AS IDENTITY UNIQUE,
    -- words of all passages, repetitions included: their mean is a part of BM25
    ADD COLUMN term_count bigint NOT NULL DEFAULT 0,
    -- false: passages from before this table are still to be read
    ADD COLUMN terms_complete boolean NOT NULL DEFAULT false,
    -- the partition of the embeddings; NULL: that of metric and dimension
    ADD COLUMN space text;
ALTER TABLE vectorforge.collections ALTER COLUMN terms_complete SET DEFAULT true;
ALTER TABLE vectorforge.documents ADD COLUMN term_count bigint NOT NULL DEFAULT 0;

-- A hash of our own: hashtext() may differ between versions of PostgreSQL. 32 bits: two words of a question meet
-- once in 10^8 questions.
CREATE FUNCTION vectorforge.term_hash(lexeme text) RETURNS int
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
RETURN ('x' || substr(md5(lexeme), 1, 8))::bit(32)::int;

-- What a passage holds, so that its postings can be found again.
CREATE TABLE vectorforge.chunk_terms (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    chunk_id uuid NOT NULL,
    collection_id uuid NOT NULL,
    document_id uuid NOT NULL,
    scope int NOT NULL,
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
    frequency smallint NOT NULL,
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

-- Reads the words of passages: title and heading are read with the text, as they are embedded with it.
CREATE FUNCTION vectorforge.add_terms(tenant text, chunk_ids uuid[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    WITH read AS (
        SELECT f.id, f.collection_id, f.document_id, c.term_scope, to_tsvector(
            c.language::regconfig, left(concat_ws(E'\n', d.title, f.heading, f.text), 200000)
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
        SELECT read.id, read.collection_id, read.document_id, read.term_scope,
               coalesce(array_agg(counted.term) FILTER (WHERE counted.term IS NOT NULL), '{}') AS terms,
               coalesce(sum(counted.frequency), 0) AS length
        FROM read LEFT JOIN counted ON counted.id = read.id
        GROUP BY 1, 2, 3, 4
    ), noted AS (
        INSERT INTO vectorforge.chunk_terms (tenant_id, chunk_id, collection_id, document_id, scope, terms, length)
        SELECT tenant, id, collection_id, document_id, term_scope, terms, length FROM summed
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
        WHERE after.to_version IS NULL AND (before.heading, before.text) IS DISTINCT FROM (after.heading, after.text)
        GROUP BY 1
    ) AS batch;
    RETURN NULL;
END
$$;
CREATE TRIGGER change_terms AFTER UPDATE ON vectorforge.chunks
    REFERENCING OLD TABLE AS before NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION vectorforge.change_terms_of_chunks();

-- Chunks go with their document, and with them what is noted of their words.
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
