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

-- The words of a text, and how often each occurs. Scripts without spaces between words (Thai, Lao, Burmese, Khmer,
-- Japanese, Chinese) give pairs of characters: with these, nDCG@10 of 1,190 Chinese questions is .96, without .30.
CREATE FUNCTION vectorforge.lexemes(config regconfig, text text) RETURNS TABLE (lexeme text, frequency int)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE ROWS 100
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    unspaced constant text :=
        '\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff';
    punctuation constant text := '\u3000-\u3004\u3006-\u303f\uff00-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65';
BEGIN
    IF octet_length(text) = length(text) OR text !~ format('[%s]', unspaced) THEN
        RETURN QUERY SELECT w.lexeme, cardinality(w.positions) FROM unnest(to_tsvector(config, text)) AS w;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT w.lexeme, cardinality(w.positions)
    FROM unnest(to_tsvector(config, regexp_replace(text, format('[%s%s]+', unspaced, punctuation), ' ', 'g'))) AS w
    UNION ALL
    SELECT substr(run.text, place, 2), count(*)::int
    FROM (SELECT match[1] AS text FROM regexp_matches(text, format('([%s]+)', unspaced), 'g') AS match) AS run
    CROSS JOIN LATERAL generate_series(1, greatest(length(run.text) - 1, 1)) AS place
    GROUP BY 1;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.lexemes(regconfig, text) TO vectorforge_app;

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
    -- the lowest number of the chunks of the collection that were indexed together
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

-- One row for each term that several chunks of a batch have: in documentation these are seven of ten rows of a large
-- document. 200 small documents stored together share 3,900 rows instead of having 24,200 (benchmark, 120 terms each).
-- A row is changed only when chunks are deleted, at the commit and in the order of keys: see delete_postings().
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

-- Index chunks of a collection: title and heading count as part of the text, as they do for embeddings. A word of the
-- title counts three times: docs/use/retrieval.md has the measurement.
CREATE FUNCTION vectorforge.add_terms(tenant text, collection uuid, chunk_ids uuid[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    target record;
BEGIN
    SELECT c.term_scope AS scope, c.language INTO target FROM vectorforge.collections AS c
    WHERE c.tenant_id = tenant AND c.id = collection;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    WITH read AS MATERIALIZED (
        SELECT nextval('vectorforge.chunk_numbers') AS number, f.id, f.document_id, word.*
        FROM vectorforge.chunks AS f
        JOIN vectorforge.documents AS d ON d.tenant_id = f.tenant_id AND d.id = f.document_id
        CROSS JOIN LATERAL (
            -- two words with one hash are two postings
            SELECT coalesce(array_agg(vectorforge.term_hash(w.lexeme)), '{}') AS terms,
                   array_agg(w.frequency) AS frequencies,
                   coalesce(sum(w.frequency), 0) AS length
            FROM vectorforge.lexemes(
                target.language::regconfig,
                left(concat_ws(E'\n', d.title, d.title, d.title, f.heading, f.text), 200000)
            ) AS w
        ) AS word
        WHERE f.tenant_id = tenant AND f.collection_id = collection AND f.id = ANY (chunk_ids)
            AND f.to_version IS NULL
    ), first AS MATERIALIZED (
        SELECT min(number) AS number FROM read
    ), noted AS (
        INSERT INTO vectorforge.chunk_terms
            (tenant_id, chunk_id, collection_id, document_id, scope, language, terms, length, number, batch)
        SELECT tenant, read.id, collection, read.document_id, target.scope, target.language, read.terms, read.length,
               read.number, first.number
        FROM read CROSS JOIN first
    ), counted AS (
        INSERT INTO vectorforge.pending_changes (tenant_id, collection_id, term_count)
        SELECT tenant, collection, sum(length) FROM read HAVING count(*) > 0
    ), grouped AS MATERIALIZED (
        SELECT posted.term, array_agg(posted.posting ORDER BY posted.posting) AS postings
        FROM (
            SELECT word.term, (read.number << 23) | ((least(word.frequency, 256)::bigint - 1) << 15)
                   | least(read.length, 32767)::bigint AS posting
            FROM read CROSS JOIN LATERAL unnest(read.terms, read.frequencies) AS word (term, frequency)
        ) AS posted
        GROUP BY 1
    ), alone AS (
        INSERT INTO vectorforge.packed_postings (scope, term, posting)
        SELECT target.scope, term, postings[1] FROM grouped WHERE cardinality(postings) = 1 ORDER BY 2
    )
    INSERT INTO vectorforge.grouped_postings (scope, term, batch, postings)
    SELECT target.scope, grouped.term, first.number, grouped.postings FROM grouped CROSS JOIN first
    WHERE cardinality(grouped.postings) > 1 ORDER BY 2;
    PERFORM vectorforge.settle_later(tenant);
END
$$;

CREATE FUNCTION vectorforge.add_terms_of_new_chunks() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM vectorforge.add_terms(batch.tenant_id, batch.collection_id, batch.ids)
    FROM (
        SELECT tenant_id, collection_id, array_agg(id) AS ids FROM added
        WHERE (tenant_id, collection_id) IN (
            SELECT c.tenant_id, c.id FROM vectorforge.collections AS c
            WHERE c.keeps_words AND (c.tenant_id, c.id) IN (SELECT DISTINCT tenant_id, collection_id FROM added)
        )
        GROUP BY 1, 2
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
    PERFORM vectorforge.add_terms(batch.tenant_id, batch.collection_id, batch.ids)
    FROM (
        SELECT after.tenant_id, after.collection_id, array_agg(after.id) AS ids
        FROM before JOIN after ON after.tenant_id = before.tenant_id AND after.id = before.id
        JOIN vectorforge.collections AS c ON c.tenant_id = after.tenant_id AND c.id = after.collection_id
        WHERE c.keeps_words AND after.to_version IS NULL
            AND (before.to_version, before.heading, before.text) IS DISTINCT FROM
                (after.to_version, after.heading, after.text)
        GROUP BY 1, 2
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

-- The title is part of each chunk's words. At the commit, so that chunks that the version with the new title replaces
-- are not indexed for nothing; chunks of that version already have the new title.
CREATE FUNCTION vectorforge.retitle_terms() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    outdated record;
BEGIN
    FOR outdated IN
        SELECT f.tenant_id, f.collection_id, array_agg(f.id) AS ids FROM vectorforge.pending_changes AS p
        JOIN vectorforge.documents AS d ON d.tenant_id = p.tenant_id AND d.id = p.retitled
        JOIN vectorforge.chunks AS f ON f.tenant_id = d.tenant_id AND f.collection_id = d.collection_id
            AND f.document_id = d.id AND f.to_version IS NULL
            AND (f.from_version < p.titled_version OR p.titled_version IS NULL)
        JOIN vectorforge.collections AS c ON c.tenant_id = d.tenant_id AND c.id = d.collection_id
        WHERE p.transaction = pg_current_xact_id() AND p.retitled IS NOT NULL AND c.keeps_words
        GROUP BY 1, 2
    LOOP
        DELETE FROM vectorforge.chunk_terms WHERE tenant_id = outdated.tenant_id AND chunk_id = ANY (outdated.ids);
        PERFORM vectorforge.add_terms(outdated.tenant_id, outdated.collection_id, outdated.ids);
    END LOOP;
END
$$;

-- The postings of deleted terms are deleted at the commit.
CREATE FUNCTION vectorforge.note_deleted_terms() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO vectorforge.pending_changes (tenant_id, collection_id, term_count, scope, number, batch, terms)
    SELECT tenant_id, collection_id, -length, scope, number, batch, terms FROM removed;
    PERFORM vectorforge.settle_later(tenant_id) FROM removed LIMIT 1;
    RETURN NULL;
END
$$;
CREATE TRIGGER note_deleted AFTER DELETE ON vectorforge.chunk_terms
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION vectorforge.note_deleted_terms();

-- Delete the postings of the chunks whose terms this transaction has deleted. Rows are locked in the order of their
-- keys, all of a transaction at once: transactions that delete documents of one batch at the same time wait for each
-- other, and do not deadlock. The locked rows are the latest, whatever another transaction has left of them.
CREATE FUNCTION vectorforge.delete_postings() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
-- each posting by its key: without statistics the planner would read them all
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    PERFORM FROM vectorforge.pending_changes WHERE transaction = pg_current_xact_id() AND terms IS NOT NULL LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- terms that one chunk of a batch has
    DELETE FROM vectorforge.packed_postings AS p
    USING (
        SELECT scope, term, min(number) << 23 AS least, (min(number) + 1) << 23 AS beyond
        FROM vectorforge.pending_changes CROSS JOIN LATERAL unnest(terms) AS term
        WHERE transaction = pg_current_xact_id()
        GROUP BY scope, term, batch HAVING count(*) = 1
        ORDER BY 1, 2, 3
    ) AS gone
    WHERE p.scope = gone.scope AND p.term = gone.term AND p.posting >= gone.least AND p.posting < gone.beyond;
    -- terms that several have: the row, or what remains of it
    WITH gone AS MATERIALIZED (
        SELECT scope, term, batch, count(*) AS chunks, array_agg(number) AS numbers
        FROM vectorforge.pending_changes CROSS JOIN LATERAL unnest(terms) AS term
        WHERE transaction = pg_current_xact_id()
        GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ), locked AS MATERIALIZED (
        SELECT p.scope, p.term, p.batch, gone.numbers, cardinality(p.postings) = gone.chunks AS wholly
        FROM gone JOIN vectorforge.grouped_postings AS p
            ON p.scope = gone.scope AND p.term = gone.term AND p.batch = gone.batch
        FOR UPDATE OF p
    ), deleted AS (
        DELETE FROM vectorforge.grouped_postings AS p USING locked
        WHERE locked.wholly AND p.scope = locked.scope AND p.term = locked.term AND p.batch = locked.batch
    )
    UPDATE vectorforge.grouped_postings AS p
    SET postings = ARRAY(
        SELECT posting FROM unnest(p.postings) AS posting WHERE posting >> 23 <> ALL (locked.numbers) ORDER BY 1
    )
    FROM locked
    WHERE NOT locked.wholly AND p.scope = locked.scope AND p.term = locked.term AND p.batch = locked.batch;
END
$$;
