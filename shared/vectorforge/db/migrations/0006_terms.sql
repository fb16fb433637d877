-- An inverted index of the chunks' words, for BM25 in plain PostgreSQL: no extension that RDS lacks.
-- Triggers maintain it, so that it is current for every writer of chunks.
SET LOCAL ROLE vectorforge_migrator;

-- A hash of our own: hashtext() may differ between versions of PostgreSQL. 32 bits: two words of a query collide once
-- in 10^8 queries. Neither STRICT nor with a search_path, which RETURN does not need: so it is inlined, 15 times as
-- fast.
CREATE FUNCTION vectorforge.term_hash(lexeme text) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ('x' || substr(md5(lexeme), 1, 8))::bit(32)::int;
GRANT EXECUTE ON FUNCTION vectorforge.term_hash(text) TO vectorforge_app;

-- A chunk in postings: a number takes a third less space than an id, and the newest chunks' postings are adjacent.
CREATE SEQUENCE vectorforge.chunk_numbers;

-- The terms of each chunk, to find its postings again.
CREATE TABLE vectorforge.chunk_terms (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    chunk_id uuid NOT NULL,
    collection_id uuid NOT NULL,
    document_id uuid NOT NULL,
    scope int NOT NULL,
    -- the text search configuration that was used; if it is not the collection's, read_terms() indexes the chunk again
    language text NOT NULL,
    terms int[] NOT NULL,
    length int NOT NULL,
    number bigint NOT NULL,
    -- the lowest number of the chunks of the same document that were indexed together
    batch bigint NOT NULL,
    PRIMARY KEY (tenant_id, chunk_id),
    FOREIGN KEY (tenant_id, collection_id, document_id)
        REFERENCES vectorforge.documents (tenant_id, collection_id, id) ON DELETE CASCADE
);
CREATE INDEX chunk_terms_by_document ON vectorforge.chunk_terms (tenant_id, collection_id, document_id);
CREATE UNIQUE INDEX chunk_terms_by_number ON vectorforge.chunk_terms (scope, number);
SELECT vectorforge.enable_tenant_isolation('chunk_terms');

-- One row for each term that one chunk of a batch has: smaller than an array, and its index contains all of it.
CREATE TABLE vectorforge.packed_postings (
    scope int NOT NULL,
    term int NOT NULL,
    -- number << 23 | (frequency - 1) << 15 | length: 41, 8 and 15 bits. A chunk has a word at most 256 times
    -- (https://www.postgresql.org/docs/current/textsearch-limitations.html), and its length is capped at 32,767.
    -- Frequency and length instead of the weight computed from them: the mean length changes with every chunk.
    posting bigint NOT NULL,
    PRIMARY KEY (scope, term, posting)
);

-- One row for each term that several chunks of a batch have: in documentation these are seven of ten rows. No row
-- belongs to two documents, so writers of different documents never wait for each other here.
CREATE TABLE vectorforge.grouped_postings (
    scope int NOT NULL,
    term int NOT NULL,
    batch bigint NOT NULL,
    -- each as in "packed_postings"
    postings bigint[] STORAGE EXTERNAL NOT NULL,
    PRIMARY KEY (scope, term, batch)
) WITH (toast_tuple_target = 8160);

DO $$
DECLARE
    table_name text;
BEGIN
    FOREACH table_name IN ARRAY ARRAY['packed_postings', 'grouped_postings'] LOOP
        EXECUTE format('ALTER TABLE vectorforge.%I ENABLE ROW LEVEL SECURITY', table_name);
        EXECUTE format('ALTER TABLE vectorforge.%I FORCE ROW LEVEL SECURITY', table_name);
        -- The collections that this sees are the tenant's; they are read once in a statement.
        EXECUTE format(
            'CREATE POLICY tenant ON vectorforge.%I FOR SELECT '
            'USING (scope = ANY (ARRAY(SELECT c.term_scope FROM vectorforge.collections AS c)))', table_name
        );
        -- Only the triggers below write, as the owner: also after the collection has been deleted.
        EXECUTE format('CREATE POLICY keeper ON vectorforge.%I TO vectorforge_migrator USING (true)', table_name);
    END LOOP;
END
$$;
GRANT SELECT ON vectorforge.chunk_terms, vectorforge.packed_postings, vectorforge.grouped_postings
    TO vectorforge_app, vectorforge_eraser;

-- Index chunks: title and heading count as part of the text, as they do for embeddings. A word of the title counts
-- three times: docs/use/retrieval.md has the measurement.
CREATE FUNCTION vectorforge.add_terms(tenant text, chunk_ids uuid[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    WITH numbered AS MATERIALIZED (
        SELECT nextval('vectorforge.chunk_numbers') AS number, f.id, f.collection_id, f.document_id, c.term_scope,
               c.language, word.terms, word.frequencies, word.length
        FROM vectorforge.chunks AS f
        JOIN vectorforge.documents AS d ON d.tenant_id = f.tenant_id AND d.id = f.document_id
        JOIN vectorforge.collections AS c ON c.tenant_id = f.tenant_id AND c.id = f.collection_id
        CROSS JOIN LATERAL (
            SELECT coalesce(array_agg(counted.term), '{}') AS terms, array_agg(counted.frequency) AS frequencies,
                   coalesce(sum(counted.frequency), 0) AS length
            FROM (
                SELECT vectorforge.term_hash(w.lexeme) AS term, sum(cardinality(w.positions)) AS frequency
                FROM unnest(to_tsvector(
                    c.language::regconfig,
                    left(concat_ws(E'\n', d.title, d.title, d.title, f.heading, f.text), 200000)
                )) AS w
                GROUP BY 1
            ) AS counted
        ) AS word
        WHERE f.tenant_id = tenant AND f.id = ANY (chunk_ids) AND f.to_version IS NULL
    ), read AS MATERIALIZED (
        SELECT numbered.*, min(number) OVER (PARTITION BY document_id) AS batch FROM numbered
    ), noted AS (
        INSERT INTO vectorforge.chunk_terms
            (tenant_id, chunk_id, collection_id, document_id, scope, language, terms, length, number, batch)
        SELECT tenant, id, collection_id, document_id, term_scope, language, terms, length, number, batch FROM read
    ), grouped AS MATERIALIZED (
        SELECT posted.scope, posted.term, posted.batch, array_agg(posted.posting ORDER BY posted.posting) AS postings
        FROM (
            SELECT read.term_scope AS scope, word.term, read.batch,
                   (read.number << 23) | ((least(word.frequency, 256)::bigint - 1) << 15)
                   | least(read.length, 32767)::bigint AS posting
            FROM read CROSS JOIN LATERAL unnest(read.terms, read.frequencies) AS word (term, frequency)
        ) AS posted
        GROUP BY 1, 2, 3
    ), alone AS (
        INSERT INTO vectorforge.packed_postings (scope, term, posting)
        SELECT scope, term, postings[1] FROM grouped WHERE cardinality(postings) = 1 ORDER BY 1, 2, 3
    )
    INSERT INTO vectorforge.grouped_postings (scope, term, batch, postings)
    SELECT scope, term, batch, postings FROM grouped WHERE cardinality(postings) > 1 ORDER BY 1, 2, 3;

    UPDATE vectorforge.documents AS d SET term_count = d.term_count + added.length
    FROM (
        SELECT document_id, sum(length) AS length FROM vectorforge.chunk_terms
        WHERE tenant_id = tenant AND chunk_id = ANY (chunk_ids) GROUP BY 1
    ) AS added
    WHERE d.tenant_id = tenant AND d.id = added.document_id AND added.length > 0;
END
$$;

CREATE FUNCTION vectorforge.add_terms_of_new_chunks() RETURNS trigger
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
        JOIN vectorforge.collections AS c ON c.tenant_id = after.tenant_id AND c.id = after.collection_id
        WHERE c.keeps_words AND after.to_version IS NULL
            AND (before.to_version, before.heading, before.text) IS DISTINCT FROM
                (after.to_version, after.heading, after.text)
        GROUP BY 1
    ) AS batch;
    RETURN NULL;
END
$$;
CREATE TRIGGER change_terms AFTER UPDATE ON vectorforge.chunks
    REFERENCING OLD TABLE AS before NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION vectorforge.change_terms_of_chunks();

-- For a chunk that is deleted alone; with a document, the foreign key deletes its rows of chunk_terms.
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

-- The title is part of each chunk's words. Deferred, so that chunks that the version with the new title replaces are
-- not indexed for nothing; chunks of that version already have the new title.
CREATE FUNCTION vectorforge.change_terms_of_document() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    outdated constant uuid[] := ARRAY(
        SELECT f.id FROM vectorforge.chunks AS f
        JOIN vectorforge.collections AS c ON c.tenant_id = f.tenant_id AND c.id = f.collection_id
        WHERE c.keeps_words AND f.tenant_id = NEW.tenant_id AND f.collection_id = NEW.collection_id
            AND f.document_id = NEW.id AND f.to_version IS NULL
            AND (f.from_version < NEW.version OR NEW.version = OLD.version)
    );
BEGIN
    DELETE FROM vectorforge.chunk_terms WHERE tenant_id = NEW.tenant_id AND chunk_id = ANY (outdated);
    PERFORM vectorforge.add_terms(NEW.tenant_id, outdated);
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER change_terms AFTER UPDATE ON vectorforge.documents
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (OLD.title IS DISTINCT FROM NEW.title)
    EXECUTE FUNCTION vectorforge.change_terms_of_document();

-- Rows are changed in the order of their keys: transactions that delete single chunks of one document at the same time
-- wait for each other, and do not deadlock.
CREATE FUNCTION vectorforge.delete_postings() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
-- each posting by its key: without statistics the planner would read them all
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    -- terms that one chunk of a batch has
    DELETE FROM vectorforge.packed_postings AS p
    USING (
        SELECT scope, term, min(number) << 23 AS least, (min(number) + 1) << 23 AS beyond
        FROM removed CROSS JOIN LATERAL unnest(terms) AS term
        GROUP BY scope, term, batch HAVING count(*) = 1
        ORDER BY 1, 2, 3
    ) AS gone
    WHERE p.scope = gone.scope AND p.term = gone.term AND p.posting >= gone.least AND p.posting < gone.beyond;
    -- terms whose chunks are all deleted: most often the whole document is
    DELETE FROM vectorforge.grouped_postings AS p
    USING (
        SELECT scope, term, batch, count(*) AS chunks
        FROM removed CROSS JOIN LATERAL unnest(terms) AS term
        GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ) AS gone
    WHERE p.scope = gone.scope AND p.term = gone.term AND p.batch = gone.batch
        AND cardinality(p.postings) = gone.chunks;
    -- Terms of which some chunks remain, or may remain because this transaction cannot see them.
    IF EXISTS (
        SELECT FROM removed LEFT JOIN vectorforge.chunk_terms AS t
            ON t.tenant_id = removed.tenant_id AND t.collection_id = removed.collection_id
                AND t.document_id = removed.document_id AND t.batch = removed.batch
        WHERE t.batch IS NOT NULL
            OR removed.tenant_id IS DISTINCT FROM nullif(current_setting('vectorforge.tenant', true), '')
    ) THEN
        UPDATE vectorforge.grouped_postings AS p
        SET postings = ARRAY(
            SELECT posting FROM unnest(p.postings) AS posting WHERE posting >> 23 <> ALL (gone.numbers) ORDER BY 1
        )
        FROM (
            SELECT scope, term, batch, array_agg(number) AS numbers
            FROM removed CROSS JOIN LATERAL unnest(terms) AS term
            GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
        ) AS gone
        WHERE p.scope = gone.scope AND p.term = gone.term AND p.batch = gone.batch;
    END IF;
    UPDATE vectorforge.documents AS d SET term_count = d.term_count - gone.length
    FROM (SELECT tenant_id, document_id, sum(length) AS length FROM removed GROUP BY 1, 2) AS gone
    WHERE d.tenant_id = gone.tenant_id AND d.id = gone.document_id AND gone.length > 0;
    RETURN NULL;
END
$$;
CREATE TRIGGER delete_postings AFTER DELETE ON vectorforge.chunk_terms
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION vectorforge.delete_postings();
