-- The language of each document chooses its text search configuration. It is the metadata "language" ("de"), which
-- ingestion detects. Documents without one, such as all of an older version, use the collection's configuration.
SET LOCAL ROLE vectorforge_migrator;

-- detect_language: false: "language" applies to every document. NULL, as an older version writes it: true if "language"
-- is the default.
-- languages: the configurations that the terms were read by. NULL: the collection's, unless there are no chunks.
ALTER TABLE vectorforge.collections ADD COLUMN detect_language boolean, ADD COLUMN languages text[];
ALTER TABLE vectorforge.pending_changes ADD COLUMN languages text[];

-- The configuration of a document in a collection whose configuration is "fallback". A language that PostgreSQL cannot
-- stem is not stemmed as another one; but one without spaces between words shares its documents with English words.
CREATE FUNCTION vectorforge.text_config(fallback text, detect boolean, metadata jsonb) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own text := metadata ->> 'language';
BEGIN
    IF own IS NULL OR NOT coalesce(detect, fallback = 'english') THEN
        RETURN fallback;
    ELSIF own = 'en' THEN
        RETURN 'english';
    END IF;
    own := lower(split_part(translate(own, '_', '-'), '-', 1));
    own := coalesce('{
        "ar": "arabic", "ca": "catalan", "da": "danish", "de": "german", "el": "greek", "en": "english",
        "es": "spanish", "et": "estonian", "eu": "basque", "fi": "finnish", "fr": "french", "ga": "irish",
        "hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian", "it": "italian", "lt": "lithuanian",
        "nb": "norwegian", "ne": "nepali", "nl": "dutch", "nn": "norwegian", "no": "norwegian", "pt": "portuguese",
        "ro": "romanian", "ru": "russian", "sr": "serbian", "sv": "swedish", "ta": "tamil", "tr": "turkish",
        "yi": "yiddish"
    }'::jsonb ->> own, own);
    PERFORM FROM pg_ts_config WHERE cfgname = own AND cfgnamespace = 'pg_catalog'::regnamespace;
    RETURN CASE
        WHEN FOUND THEN own
        WHEN own ~ '^[a-z]{2}$' AND own <> ALL ('{ja,km,lo,my,th,zh}') THEN 'simple'
        ELSE fallback
    END;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.text_config(text, boolean, jsonb) TO vectorforge_app;

-- As in 0006, with two changes. Punctuation beyond ASCII separates words: in a database whose LC_CTYPE is C, every
-- character beyond ASCII counts as a letter (p_isalpha in src/backend/tsearch/wparser_def.c of PostgreSQL 18), and a
-- word would differ from itself before a question mark or in quotation marks (1,190 Arabic questions: nDCG@10 .82 with
-- it, .90 without). Korean words give pairs of characters too, since particles are written onto them.
CREATE OR REPLACE FUNCTION vectorforge.lexemes(config regconfig, text text)
RETURNS TABLE (lexeme text, frequency int)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE ROWS 100
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    unspaced constant text :=
        '\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff';
    hangul constant text := '\uac00-\ud7a3';
    -- Latin, Greek, Armenian, Hebrew, Arabic, Devanagari, Ethiopic; general punctuation but for joiners, currencies,
    -- arrows to dingbats; Chinese and Japanese, and full-width forms
    punctuation constant text := '\u0080-\u00a9\u00ab-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf\u00d7\u00f7'
        '\u037e\u0387\u055a-\u055f\u0589\u058a\u05be\u05c0\u05c3\u05f3\u05f4\u060c\u060d\u061b-\u061f\u066a-\u066d'
        '\u06d4\u0964\u0965\u0970\u1361-\u1368\u2000-\u200b\u200e-\u206f\u20a0-\u20cf\u2190-\u2bff'
        '\u3000-\u3004\u3006-\u303f\ufeff\uff00-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65';
BEGIN
    IF octet_length(text) = length(text) THEN
        RETURN QUERY SELECT w.lexeme, cardinality(w.positions) FROM unnest(to_tsvector(config, text)) AS w;
        RETURN;
    END IF;
    IF text !~ format('[%s%s]', unspaced, hangul) THEN
        RETURN QUERY
        SELECT w.lexeme, cardinality(w.positions)
        FROM unnest(to_tsvector(config, regexp_replace(text, format('[%s]+', punctuation), ' ', 'g'))) AS w;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT w.lexeme, cardinality(w.positions)
    FROM unnest(to_tsvector(config, regexp_replace(text, format('[%s%s]+', unspaced, punctuation), ' ', 'g'))) AS w
    UNION ALL
    SELECT substr(run.text, place, 2), count(*)::int
    FROM (
        SELECT match[1] AS text FROM regexp_matches(text, format('([%s]+|[%s]{3,})', unspaced, hangul), 'g') AS match
    ) AS run
    CROSS JOIN LATERAL generate_series(1, greatest(length(run.text) - 1, 1)) AS place
    GROUP BY 1;
END
$$;

-- A query for a collection of several configurations, without the stop words of its own language: the others would
-- search for them, and rare as they are in those documents, they would weigh the most. Its own language is the one that
-- has the most of them.
CREATE FUNCTION vectorforge.without_stop_words(query text, configs text[]) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own regconfig;
BEGIN
    SELECT CASE WHEN count(*) = 1 THEN min(c.config) END INTO own FROM (
        SELECT config, rank() OVER (ORDER BY length(to_tsvector(config::regconfig, query))) AS place
        FROM unnest(configs) AS config
    ) AS c
    WHERE c.place = 1;
    RETURN CASE WHEN own IS NULL THEN query ELSE coalesce((
        SELECT string_agg(word, ' ') FROM unnest(tsvector_to_array(to_tsvector('simple', query))) AS word
        WHERE length(to_tsvector(own, word)) > 0
    ), '') END;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.without_stop_words(text, text[]) TO vectorforge_app;

-- As in 0006, but for the configuration of each document.
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

-- As in 0007, likewise.
CREATE OR REPLACE FUNCTION vectorforge.read_terms(
    collection uuid, most int, OUT documents int, OUT passages int, OUT state text
)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    tenant constant text := NULLIF(current_setting('vectorforge.tenant', true), '');
    target record;
    following uuid[];
    locked uuid[];
    unread uuid[];
    last_begun uuid;
BEGIN
    IF most IS NULL OR most NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'most must be between 1 and 10000' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    documents := 0;
    passages := 0;
    state := 'complete';
    SELECT c.language, c.detect_language, c.terms_cursor INTO target FROM vectorforge.collections AS c
    WHERE c.tenant_id = tenant AND c.id = collection AND NOT c.terms_complete;
    IF NOT FOUND THEN
        RETURN;
    END IF;

    following := ARRAY(
        SELECT d.id FROM vectorforge.documents AS d
        WHERE d.tenant_id = tenant AND d.collection_id = collection
            AND d.id > coalesce(target.terms_cursor, '00000000-0000-0000-0000-000000000000')
        ORDER BY d.id LIMIT 100
    );
    locked := ARRAY(
        SELECT d.id FROM vectorforge.documents AS d
        WHERE d.tenant_id = tenant AND d.id = ANY (following) ORDER BY d.id FOR NO KEY UPDATE SKIP LOCKED
    );
    -- up to the first one that is being written, or has just been deleted
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
        JOIN vectorforge.documents AS d ON d.tenant_id = f.tenant_id AND d.id = f.document_id
        LEFT JOIN vectorforge.chunk_terms AS t
            ON t.tenant_id = f.tenant_id AND t.chunk_id = f.id
            AND t.language = vectorforge.text_config(target.language, target.detect_language, d.metadata)
        WHERE f.tenant_id = tenant AND f.collection_id = collection AND f.document_id = ANY (locked)
            AND f.to_version IS NULL AND t.chunk_id IS NULL
        ORDER BY f.document_id LIMIT most
    ) AS f;
    passages := coalesce(cardinality(unread), 0);
    IF passages > 0 THEN
        DELETE FROM vectorforge.chunk_terms WHERE tenant_id = tenant AND chunk_id = ANY (unread);
        PERFORM vectorforge.add_terms(tenant, collection, unread);
        -- before the collection is locked, as at every commit
        PERFORM vectorforge.settle_changes();
    END IF;
    -- the last document may have more chunks
    IF passages = most THEN
        locked := ARRAY(SELECT d.id FROM unnest(locked) AS d (id) WHERE d.id < last_begun ORDER BY d.id);
    END IF;

    documents := cardinality(locked);
    state := CASE WHEN following = '{}' THEN 'complete' ELSE 'more' END;
    -- unless the language has changed meanwhile: then indexing starts over
    UPDATE vectorforge.collections AS c
    SET terms_cursor = CASE WHEN following <> '{}' THEN coalesce(locked[documents], c.terms_cursor) END,
        terms_complete = following = '{}',
        data_version = c.data_version + (following = '{}')::int
    WHERE c.tenant_id = tenant AND c.id = collection AND c.language = target.language
        AND c.detect_language IS NOT DISTINCT FROM target.detect_language AND NOT c.terms_complete
        AND c.terms_cursor IS NOT DISTINCT FROM target.terms_cursor;
    IF NOT FOUND THEN
        state := 'more';
    END IF;
END
$$;

-- As in 0004, and notes the configurations of new terms.
CREATE OR REPLACE FUNCTION vectorforge.settle_changes() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM vectorforge.retitle_terms();
    PERFORM vectorforge.delete_postings();
    UPDATE vectorforge.collections AS c
    SET data_version = c.data_version + change.data_version,
        document_count = c.document_count + change.document_count,
        chunk_count = c.chunk_count + change.chunk_count,
        term_count = c.term_count + change.term_count,
        languages = CASE
            WHEN change.languages IS NULL OR change.languages <@ c.languages THEN c.languages
            ELSE ARRAY(
                SELECT unnest(coalesce(c.languages, CASE WHEN c.chunk_count > 0 THEN ARRAY[c.language] END))
                UNION SELECT unnest(change.languages) ORDER BY 1
            )
        END
    FROM (
        SELECT p.tenant_id, p.collection_id, sum(p.data_version) AS data_version,
               sum(p.document_count) AS document_count, sum(p.chunk_count) AS chunk_count,
               sum(p.term_count) AS term_count,
               (
                   SELECT array_agg(DISTINCT config)
                   FROM vectorforge.pending_changes AS q CROSS JOIN unnest(q.languages) AS config
                   WHERE q.transaction = pg_current_xact_id() AND q.tenant_id = p.tenant_id
                       AND q.collection_id = p.collection_id
               ) AS languages
        FROM vectorforge.pending_changes AS p WHERE p.transaction = pg_current_xact_id()
        GROUP BY 1, 2 ORDER BY 1, 2
    ) AS change
    WHERE c.tenant_id = change.tenant_id AND c.id = change.collection_id;
    DELETE FROM vectorforge.pending_changes WHERE transaction = pg_current_xact_id();
END
$$;

-- As in 0004; another language changes the words of a document's chunks as another title does.
CREATE OR REPLACE FUNCTION vectorforge.count_documents() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO vectorforge.pending_changes (tenant_id, collection_id, data_version, document_count, chunk_count)
        SELECT tenant_id, collection_id, count(*), count(*), sum(chunk_count) FROM added GROUP BY 1, 2;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO vectorforge.pending_changes (tenant_id, collection_id, data_version, document_count, chunk_count)
        SELECT tenant_id, collection_id, count(*), -count(*), -sum(chunk_count) FROM removed GROUP BY 1, 2;
    ELSE
        INSERT INTO vectorforge.pending_changes (tenant_id, collection_id, data_version, document_count, chunk_count)
        SELECT tenant_id, collection_id, count(*) FILTER (WHERE sign = 1), sum(sign), sum(sign * chunk_count) FROM (
            SELECT tenant_id, collection_id, chunk_count, 1 AS sign FROM added
            UNION ALL
            SELECT tenant_id, collection_id, chunk_count, -1 FROM removed
        ) AS changed
        GROUP BY 1, 2;
        INSERT INTO vectorforge.pending_changes (tenant_id, retitled, titled_version)
        SELECT added.tenant_id, added.id, CASE WHEN added.version <> removed.version THEN added.version END
        FROM added JOIN removed ON removed.tenant_id = added.tenant_id AND removed.id = added.id
        WHERE (added.title, added.metadata -> 'language')
            IS DISTINCT FROM (removed.title, removed.metadata -> 'language');
    END IF;
    PERFORM vectorforge.settle_later(p.tenant_id) FROM vectorforge.pending_changes AS p
    WHERE p.transaction = pg_current_xact_id() LIMIT 1;
    RETURN NULL;
END
$$;
