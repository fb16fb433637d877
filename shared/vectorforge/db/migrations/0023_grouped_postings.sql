-- Words that several passages of a document have take one row: in pages of documentation seven of ten rows.
SET LOCAL ROLE vectorforge_migrator;

-- Which of a document's passages were read together: the least of their numbers. NULL: each has rows of its own.
ALTER TABLE vectorforge.chunk_terms ADD COLUMN batch bigint;

-- One row for each word that two or more passages have that were read together. What one alone has is in
-- "packed_postings" as before: there it takes less room, and an index has all of it. No row is of two documents, so
-- writers of different documents never wait for each other here. The version before finds what is in "packed_postings".
CREATE TABLE vectorforge.grouped_postings (
    scope int NOT NULL,
    term int NOT NULL,
    batch bigint NOT NULL,
    -- each as in "packed_postings"
    postings bigint[] NOT NULL,
    PRIMARY KEY (scope, term, batch)
) WITH (toast_tuple_target = 8160);
ALTER TABLE vectorforge.grouped_postings ALTER COLUMN postings SET STORAGE EXTERNAL;
ALTER TABLE vectorforge.grouped_postings ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.grouped_postings FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vectorforge.grouped_postings FOR SELECT
    USING (scope = ANY (ARRAY(SELECT c.term_scope FROM vectorforge.collections AS c)));
CREATE POLICY keeper ON vectorforge.grouped_postings TO vectorforge_migrator USING (true);
GRANT SELECT ON vectorforge.grouped_postings TO vectorforge_app, vectorforge_eraser;

-- As in 0017, into both tables.
CREATE OR REPLACE FUNCTION vectorforge.add_terms(tenant text, chunk_ids uuid[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    WITH numbered AS MATERIALIZED (
        SELECT nextval('vectorforge.passage_numbers') AS number, f.id, f.collection_id, f.document_id, c.term_scope,
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

-- As in 0017, of all three tables. Rows are changed in the order of their keys: who deletes single passages of the same
-- document at the same time waits, and closes no ring.
CREATE OR REPLACE FUNCTION vectorforge.delete_postings() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
-- each posting by its key: without statistics the planner would read them all
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    -- what two of them have that were read together is not here
    DELETE FROM vectorforge.packed_postings AS p
    USING (
        SELECT scope, term, min(number) << 23 AS least, (min(number) + 1) << 23 AS beyond
        FROM removed CROSS JOIN LATERAL unnest(terms) AS term
        WHERE number IS NOT NULL
        GROUP BY scope, term, coalesce(batch, -number) HAVING count(*) = 1
        ORDER BY 1, 2, 3
    ) AS gone
    WHERE p.scope = gone.scope AND p.term = gone.term AND p.posting >= gone.least AND p.posting < gone.beyond;
    -- all passages that have the word: most often the whole document goes
    DELETE FROM vectorforge.grouped_postings AS p
    USING (
        SELECT scope, term, batch, count(*) AS passages
        FROM removed CROSS JOIN LATERAL unnest(terms) AS term
        WHERE batch IS NOT NULL GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ) AS gone
    WHERE p.scope = gone.scope AND p.term = gone.term AND p.batch = gone.batch
        AND cardinality(p.postings) = gone.passages;
    -- Others stay; or so it is to be taken, where this may not see them.
    IF EXISTS (
        SELECT FROM removed LEFT JOIN vectorforge.chunk_terms AS t
            ON t.tenant_id = removed.tenant_id AND t.collection_id = removed.collection_id
                AND t.document_id = removed.document_id AND t.batch = removed.batch
        WHERE removed.batch IS NOT NULL AND (
            t.batch IS NOT NULL
            OR removed.tenant_id IS DISTINCT FROM nullif(current_setting('vectorforge.tenant', true), '')
        )
    ) THEN
        UPDATE vectorforge.grouped_postings AS p
        SET postings = ARRAY(
            SELECT posting FROM unnest(p.postings) AS posting WHERE posting >> 23 <> ALL (gone.numbers) ORDER BY 1
        )
        FROM (
            SELECT scope, term, batch, array_agg(number) AS numbers
            FROM removed CROSS JOIN LATERAL unnest(terms) AS term
            WHERE batch IS NOT NULL GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
        ) AS gone
        WHERE p.scope = gone.scope AND p.term = gone.term AND p.batch = gone.batch;
    END IF;
    IF EXISTS (SELECT FROM removed WHERE number IS NULL) THEN
        DELETE FROM vectorforge.postings AS p
        USING (SELECT scope, unnest(terms) AS term, chunk_id FROM removed WHERE number IS NULL) AS gone
        WHERE p.scope = gone.scope AND p.term = gone.term AND p.chunk_id = gone.chunk_id;
    END IF;
    UPDATE vectorforge.documents AS d SET term_count = d.term_count - gone.length
    FROM (SELECT tenant_id, document_id, sum(length) AS length FROM removed GROUP BY 1, 2) AS gone
    WHERE d.tenant_id = gone.tenant_id AND d.id = gone.document_id AND gone.length > 0;
    RETURN NULL;
END
$$;
