-- Settings of a tenant of its own. A tenant without a row, and a column that is NULL, has the server's default.
SET LOCAL ROLE vectorforge_migrator;

CREATE TABLE vectorforge.tenants (
    tenant_id text PRIMARY KEY CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    -- what the query log keeps of questions and answers
    log_text text CHECK (log_text IN ('full', 'redacted', 'hash', 'off')),
    requests_per_minute int CHECK (requests_per_minute > 0),
    tokens_per_day bigint CHECK (tokens_per_day > 0),
    cost_per_month_usd numeric(12, 2) CHECK (cost_per_month_usd > 0),
    concurrent_streams int CHECK (concurrent_streams > 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

ALTER TABLE vectorforge.tenants ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.tenants FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vectorforge.tenants
    USING (tenant_id = NULLIF(current_setting('vectorforge.tenant', true), ''));
GRANT SELECT, INSERT, UPDATE ON vectorforge.tenants TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.tenants TO vectorforge_eraser;
