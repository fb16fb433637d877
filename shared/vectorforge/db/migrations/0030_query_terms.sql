-- Words of a query with their postings, as an array each: docs/use/retrieval.md, "Words".
SET LOCAL ROLE vectorforge_migrator;

-- The postings of each word of a query or its context, in no order. With the rights of the caller, so that row-level
-- security applies. Its plan, which is right for any sizes as it looks up keys, is kept by each connection, and the
-- postings are read once, to count and to score them.
CREATE FUNCTION vectorforge.query_terms(term_scope int, languages text[], query_text text, context_text text)
RETURNS TABLE (in_query boolean, postings bigint[])
LANGUAGE plpgsql STABLE ROWS 10
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN QUERY
    SELECT read.in_query, ARRAY(
        SELECT p.posting FROM vectorforge.packed_postings AS p
        WHERE p.scope = term_scope AND p.term = read.term
        UNION ALL
        SELECT unnest(p.postings) FROM vectorforge.grouped_postings AS p
        WHERE p.scope = term_scope AND p.term = read.term
    )
    FROM (
        SELECT vectorforge.term_hash(word.lexeme) AS term, bool_or(given.in_query) AS in_query
        FROM (VALUES (query_text, true), (context_text, false)) AS given (text, in_query)
        CROSS JOIN unnest(languages) AS language
        CROSS JOIN LATERAL vectorforge.lexemes(
            language::regconfig,
            CASE WHEN cardinality(languages) = 1 THEN given.text
                ELSE vectorforge.without_stop_words(given.text, languages) END
        ) AS word
        WHERE given.text IS NOT NULL
        GROUP BY 1
        OFFSET 0
    ) AS read;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.query_terms(int, text[], text, text) TO vectorforge_app;
