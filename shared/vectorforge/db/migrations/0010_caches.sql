-- Answers and vectors of questions that were asked before, shared by all processes.
SET LOCAL ROLE vectorforge_migrator;

CREATE TABLE vectorforge.cached_answers (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    -- sha256 of everything that the answer depends on, but for the documents
    key bytea NOT NULL CHECK (octet_length(key) = 32),
    collection_id uuid NOT NULL,
    -- of the collection, read before the search: an answer of another version is never served
    data_version bigint NOT NULL,
    answer jsonb NOT NULL CHECK (jsonb_typeof(answer) = 'object'),
    created_at timestamptz NOT NULL DEFAULT now(),
    -- until then it is fresh; later only an answer for want of a better one
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, key),
    FOREIGN KEY (tenant_id, collection_id) REFERENCES vectorforge.collections (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX cached_answers_by_collection ON vectorforge.cached_answers (tenant_id, collection_id);
CREATE INDEX cached_answers_by_expiry ON vectorforge.cached_answers (expires_at);

CREATE TABLE vectorforge.cached_embeddings (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    -- sha256 of provider, model and text
    key bytea NOT NULL CHECK (octet_length(key) = 32),
    -- little-endian 4-byte floats
    vector bytea NOT NULL CHECK (octet_length(vector) BETWEEN 4 AND 64000),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, key)
);
CREATE INDEX cached_embeddings_by_expiry ON vectorforge.cached_embeddings (expires_at);

ALTER TABLE vectorforge.cached_answers ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.cached_answers FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vectorforge.cached_answers
    USING (tenant_id = NULLIF(current_setting('vectorforge.tenant', true), ''));
ALTER TABLE vectorforge.cached_embeddings ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.cached_embeddings FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vectorforge.cached_embeddings
    USING (tenant_id = NULLIF(current_setting('vectorforge.tenant', true), ''));
GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.cached_answers, vectorforge.cached_embeddings TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.cached_answers, vectorforge.cached_embeddings TO vectorforge_eraser;
