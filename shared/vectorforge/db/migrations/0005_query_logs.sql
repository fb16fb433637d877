-- The record of every question. It refers to collections and chunks without foreign keys: a log must be
-- writable after its collection is gone.
SET LOCAL ROLE vectorforge_migrator;

CREATE TABLE vectorforge.query_logs (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    id uuid NOT NULL,
    collection_id uuid NOT NULL,
    query_text text NOT NULL,
    retrieved_chunk_ids jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(retrieved_chunk_ids) = 'array'),
    used_chunk_ids jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(used_chunk_ids) = 'array'),
    generated_response text NOT NULL DEFAULT '',
    outcome text NOT NULL,
    provider text,
    model text,
    prompt_tokens int,
    completion_tokens int,
    latency_ms double precision NOT NULL,
    retrieval_ms double precision,
    generation_ms double precision,
    error_code text,
    error_stage text,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX query_logs_by_time ON vectorforge.query_logs (tenant_id, created_at);
CREATE INDEX query_logs_by_collection ON vectorforge.query_logs (tenant_id, collection_id, created_at);

ALTER TABLE vectorforge.query_logs ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.query_logs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vectorforge.query_logs
    USING (tenant_id = NULLIF(current_setting('vectorforge.tenant', true), ''));
GRANT SELECT, INSERT, DELETE ON vectorforge.query_logs TO vectorforge_app;
GRANT INSERT ON vectorforge.query_logs TO vectorforge_log_writer;
GRANT SELECT, DELETE ON vectorforge.query_logs TO vectorforge_eraser;
