-- no-transaction
-- For erase_old_log_texts(): the records that still have a text, the oldest first.
DROP INDEX CONCURRENTLY IF EXISTS vectorforge.query_logs_with_text;
CREATE INDEX CONCURRENTLY query_logs_with_text ON vectorforge.query_logs (created_at) WHERE text_erased_at IS NULL;
