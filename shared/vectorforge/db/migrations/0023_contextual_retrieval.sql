-- Contextual retrieval: a chunk may have a context, a few words that place it in its document, which is embedded and
-- indexed with the chunk's text, and never returned with it; docs/use/contextual-retrieval.md.
SET LOCAL ROLE vectorforge_migrator;

ALTER TABLE vectorforge.collections ADD COLUMN contextual boolean NOT NULL DEFAULT false;
ALTER TABLE vectorforge.chunks ADD COLUMN index_context text;

-- As in 0021, with the context among the words.
CREATE OR REPLACE FUNCTION vectorforge.add_terms(tenant text, collection uuid, chunk_ids uuid[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    target record;
BEGIN
    SELECT c.term_scope AS scope, c.language, c.detect_language INTO target FROM vectorforge.collections AS c
    WHERE c.tenant_id = tenant AND c.id = collection;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    WITH read AS MATERIALIZED (
        SELECT nextval('vectorforge.chunk_numbers') AS number, f.id, f.document_id, own.language, word.*
        FROM vectorforge.chunks AS f
        JOIN vectorforge.documents AS d ON d.tenant_id = f.tenant_id AND d.id = f.document_id
        CROSS JOIN LATERAL (
            SELECT vectorforge.text_config(target.language, target.detect_language, d.metadata) AS language OFFSET 0
        ) AS own
        CROSS JOIN LATERAL (
            -- two words with one hash are two postings
            SELECT coalesce(array_agg(vectorforge.term_hash(w.lexeme)), '{}') AS terms,
                   array_agg(w.frequency) AS frequencies,
                   coalesce(sum(w.frequency), 0) AS length
            FROM vectorforge.lexemes(
                own.language::regconfig,
                left(
                    concat_ws(E'\n', d.title, d.title, d.title, f.heading, f.index_context, f.text), 200000
                )
            ) AS w
        ) AS word
        WHERE f.tenant_id = tenant AND f.collection_id = collection AND f.id = ANY (chunk_ids)
            AND f.to_version IS NULL
    ), first AS MATERIALIZED (
        SELECT min(number) AS number FROM read
    ), noted AS (
        INSERT INTO vectorforge.chunk_terms
            (tenant_id, chunk_id, collection_id, document_id, scope, language, terms, length, number, batch)
        SELECT tenant, read.id, collection, read.document_id, target.scope, read.language, read.terms, read.length,
               read.number, first.number
        FROM read CROSS JOIN first
    ), counted AS (
        INSERT INTO vectorforge.pending_changes (tenant_id, collection_id, term_count, languages)
        SELECT tenant, collection, sum(length), array_agg(DISTINCT read.language) FROM read HAVING count(*) > 0
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

-- As in 0006, likewise.
CREATE OR REPLACE FUNCTION vectorforge.change_terms_of_chunks() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM vectorforge.chunk_terms AS t
    USING before JOIN after ON after.tenant_id = before.tenant_id AND after.id = before.id
    WHERE t.tenant_id = before.tenant_id AND t.chunk_id = before.id
        AND (before.to_version, before.heading, before.index_context, before.text) IS DISTINCT FROM
            (after.to_version, after.heading, after.index_context, after.text);
    PERFORM vectorforge.add_terms(batch.tenant_id, batch.collection_id, batch.ids)
    FROM (
        SELECT after.tenant_id, after.collection_id, array_agg(after.id) AS ids
        FROM before JOIN after ON after.tenant_id = before.tenant_id AND after.id = before.id
        JOIN vectorforge.collections AS c ON c.tenant_id = after.tenant_id AND c.id = after.collection_id
        WHERE c.keeps_words AND after.to_version IS NULL
            AND (before.to_version, before.heading, before.index_context, before.text) IS DISTINCT FROM
                (after.to_version, after.heading, after.index_context, after.text)
        GROUP BY 1, 2
    ) AS batch;
    RETURN NULL;
END
$$;
