-- no-transaction
-- One answer for each key of a tenant.
DROP INDEX CONCURRENTLY IF EXISTS vectorforge.answer_streams_by_key;
CREATE UNIQUE INDEX CONCURRENTLY answer_streams_by_key ON vectorforge.answer_streams (tenant_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
-- A tenant's keys by age, since only so many are kept.
DROP INDEX CONCURRENTLY IF EXISTS vectorforge.answer_streams_with_key;
CREATE INDEX CONCURRENTLY answer_streams_with_key ON vectorforge.answer_streams (tenant_id, created_at)
    WHERE idempotency_key IS NOT NULL;
