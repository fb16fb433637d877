-- Collections: documents that are embedded by one model and searched together.
SET LOCAL ROLE vectorforge_migrator;

CREATE TABLE vectorforge.collections (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    id uuid NOT NULL,
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    description text NOT NULL DEFAULT '',
    embedding_provider text NOT NULL,
    embedding_model text NOT NULL,
    dimension int NOT NULL CHECK (dimension BETWEEN 1 AND 16000),
    distance_metric text NOT NULL CHECK (distance_metric IN ('cosine', 'inner_product', 'l2')),
    query_prefix text NOT NULL DEFAULT '',
    document_prefix text NOT NULL DEFAULT '',
    -- the partition of the embeddings; NULL: the one of metric and dimension
    space text,
    -- The partition that writers fill in addition to "space" during an embedding switch; NULL: no switch is open.
    -- Stored here, because every writer locks the collection's row.
    other_space text,
    -- true: every document belongs to a profile, and every search names one
    by_profile boolean NOT NULL DEFAULT false,
    search_mode text NOT NULL DEFAULT 'hybrid' CHECK (search_mode IN ('hybrid', 'dense', 'lexical')),
    -- share of the vector score in a hybrid score; the lexical score has the rest
    dense_weight double precision NOT NULL DEFAULT 0.5 CHECK (dense_weight BETWEEN 0 AND 1),
    -- a text search configuration of PostgreSQL: how words are stemmed, and which are left out
    language text NOT NULL DEFAULT 'english' CHECK (char_length(language) BETWEEN 1 AND 63),
    -- Replaces tenant and collection in every posting, where their 36 bytes would double its size. An identity, so that
    -- no tenant can use another's.
    term_scope int NOT NULL GENERATED ALWAYS AS IDENTITY UNIQUE,
    -- false: terms of new chunks are not indexed, which is most of the time of storing one. A search mode that needs
    -- them sets it to true, and a worker indexes all chunks.
    keeps_words boolean NOT NULL DEFAULT true,
    -- false: read_terms() has chunks to index
    terms_complete boolean NOT NULL DEFAULT true,
    -- meanwhile: the last indexed document, in the order of ids
    terms_cursor uuid,
    -- words of all chunks, repetitions included: their mean is part of BM25
    term_count bigint NOT NULL DEFAULT 0,
    document_count bigint NOT NULL DEFAULT 0,
    chunk_count bigint NOT NULL DEFAULT 0,
    -- incremented by every change of a document; cached answers of other versions are stale
    data_version bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name)
);
SELECT vectorforge.enable_tenant_isolation('collections');
GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.collections TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.collections TO vectorforge_eraser;

-- for unread_collections() and embedding_space_sizes(), across tenants
CREATE POLICY dispatcher ON vectorforge.collections TO vectorforge_dispatcher USING (true);
GRANT SELECT (tenant_id, id, document_count, chunk_count, terms_complete, distance_metric, dimension, space,
              other_space)
    ON vectorforge.collections TO vectorforge_dispatcher;
