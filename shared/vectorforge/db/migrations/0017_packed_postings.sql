-- Postings by a passage's number instead of its id: a third smaller, and the newest passages' stand side by side.
SET LOCAL ROLE vectorforge_migrator;

CREATE SEQUENCE vectorforge.passage_numbers;
-- NULL: its words are in "postings" still, and to be read again
ALTER TABLE vectorforge.chunk_terms ADD COLUMN number bigint;
-- Of rows with a number there is none yet: this reads the table once, and writes nothing.
-- squawk-ignore require-concurrent-index-creation
CREATE UNIQUE INDEX chunk_terms_by_number ON vectorforge.chunk_terms (scope, number) WHERE number IS NOT NULL;

-- One row for each word of each passage, as in "postings", which is for the version before and grows no more.
CREATE TABLE vectorforge.packed_postings (
    scope int NOT NULL,
    term int NOT NULL,
    -- number << 23 | (frequency - 1) << 15 | length: 41, 8 and 15 bits. A passage has a word 256 times at most
    -- (https://www.postgresql.org/docs/current/textsearch-limitations.html), and its length ends at 32,767.
    posting bigint NOT NULL,
    PRIMARY KEY (scope, term, posting)
);
ALTER TABLE vectorforge.packed_postings ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.packed_postings FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vectorforge.packed_postings FOR SELECT
    USING (scope = ANY (ARRAY(SELECT c.term_scope FROM vectorforge.collections AS c)));
CREATE POLICY keeper ON vectorforge.packed_postings TO vectorforge_migrator USING (true);
GRANT SELECT ON vectorforge.packed_postings TO vectorforge_app, vectorforge_eraser;

-- As in 0014, into the packed postings, and without a join: the planner knows nothing of how many words there are.
CREATE OR REPLACE FUNCTION vectorforge.add_terms(tenant text, chunk_ids uuid[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    WITH read AS MATERIALIZED (
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
    ), noted AS (
        INSERT INTO vectorforge.chunk_terms
            (tenant_id, chunk_id, collection_id, document_id, scope, language, terms, length, number)
        SELECT tenant, id, collection_id, document_id, term_scope, language, terms, length, number FROM read
    )
    INSERT INTO vectorforge.packed_postings (scope, term, posting)
    SELECT read.term_scope, word.term,
           (read.number << 23) | ((least(word.frequency, 256)::bigint - 1) << 15) | least(read.length, 32767)::bigint
    FROM read CROSS JOIN LATERAL unnest(read.terms, read.frequencies) AS word (term, frequency)
    ORDER BY 1, 2, 3;

    UPDATE vectorforge.documents AS d SET term_count = d.term_count + added.length
    FROM (
        SELECT document_id, sum(length) AS length FROM vectorforge.chunk_terms
        WHERE tenant_id = tenant AND chunk_id = ANY (chunk_ids) GROUP BY 1
    ) AS added
    WHERE d.tenant_id = tenant AND d.id = added.document_id AND added.length > 0;
END
$$;

-- As in 0014, of both tables.
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
    DELETE FROM vectorforge.packed_postings AS p
    USING (
        SELECT scope, unnest(terms) AS term, number << 23 AS least, (number + 1) << 23 AS beyond
        FROM removed WHERE number IS NOT NULL
        ORDER BY 1, 2, 3
    ) AS gone
    WHERE p.scope = gone.scope AND p.term = gone.term AND p.posting >= gone.least AND p.posting < gone.beyond;
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

-- As in 0014; what has no number is read as well.
CREATE OR REPLACE FUNCTION vectorforge.read_terms(collection uuid, most int, OUT documents int, OUT passages int, OUT state text)
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
            AND t.number IS NOT NULL
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

-- Read again by `vectorforge migrate` and by workers. Of all tenants, so past the policies.
ALTER TABLE vectorforge.collections NO FORCE ROW LEVEL SECURITY;
UPDATE vectorforge.collections SET terms_complete = false, terms_cursor = NULL WHERE document_count > 0;
ALTER TABLE vectorforge.collections FORCE ROW LEVEL SECURITY;
