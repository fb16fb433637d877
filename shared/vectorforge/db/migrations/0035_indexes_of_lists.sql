-- no-transaction
-- For lists in the order of time, and for what 0034 counts. The first statement of each pair removes an invalid index that
-- an interrupted attempt has left.
DROP INDEX CONCURRENTLY IF EXISTS vectorforge.documents_by_creation;
CREATE INDEX CONCURRENTLY documents_by_creation ON vectorforge.documents (tenant_id, created_at, id);
DROP INDEX CONCURRENTLY IF EXISTS vectorforge.documents_of_collection_by_creation;
CREATE INDEX CONCURRENTLY documents_of_collection_by_creation ON vectorforge.documents
    (tenant_id, collection_id, created_at, id);
DROP INDEX CONCURRENTLY IF EXISTS vectorforge.collections_by_creation;
CREATE INDEX CONCURRENTLY collections_by_creation ON vectorforge.collections (tenant_id, created_at, id);
-- for unread_collections(), which workers call for all tenants
DROP INDEX CONCURRENTLY IF EXISTS vectorforge.collections_with_words_to_read;
CREATE INDEX CONCURRENTLY collections_with_words_to_read ON vectorforge.collections (tenant_id, id)
    WHERE NOT terms_complete;
-- files that are no documents
DROP INDEX CONCURRENTLY IF EXISTS vectorforge.uploaded_files_by_creation;
CREATE INDEX CONCURRENTLY uploaded_files_by_creation ON vectorforge.uploaded_files (tenant_id, created_at, id)
    WHERE NOT is_stored;
DROP INDEX CONCURRENTLY IF EXISTS vectorforge.uploaded_files_of_collection;
CREATE INDEX CONCURRENTLY uploaded_files_of_collection ON vectorforge.uploaded_files
    (tenant_id, collection_id, created_at, id) WHERE NOT is_stored;
-- for the erasure of a document
DROP INDEX CONCURRENTLY IF EXISTS vectorforge.uploaded_files_by_document;
CREATE INDEX CONCURRENTLY uploaded_files_by_document ON vectorforge.uploaded_files (tenant_id, document_id)
    WHERE document_id IS NOT NULL;
-- the next documents of a job without those that have ended, and those that have stopped a worker
DROP INDEX CONCURRENTLY IF EXISTS vectorforge.ingestion_job_items_open;
CREATE INDEX CONCURRENTLY ingestion_job_items_open ON vectorforge.ingestion_job_items
    (tenant_id, job_id, status, ordinal) WHERE status IN ('queued', 'running');
DROP INDEX CONCURRENTLY IF EXISTS vectorforge.ingestion_job_items_begun_before;
CREATE INDEX CONCURRENTLY ingestion_job_items_begun_before ON vectorforge.ingestion_job_items (tenant_id, job_id)
    WHERE status = 'queued' AND attempts > 0;
DROP INDEX CONCURRENTLY IF EXISTS vectorforge.conversations_by_credential;
CREATE INDEX CONCURRENTLY conversations_by_credential ON vectorforge.conversations
    (tenant_id, credential, updated_at, id);
DROP INDEX CONCURRENTLY IF EXISTS vectorforge.conversations_of_sessions;
CREATE INDEX CONCURRENTLY conversations_of_sessions ON vectorforge.conversations (tenant_id, updated_at, id)
    WHERE credential LIKE 'session:%';
DROP INDEX CONCURRENTLY IF EXISTS vectorforge.answer_streams_by_place;
CREATE INDEX CONCURRENTLY answer_streams_by_place ON vectorforge.answer_streams (tenant_id, place)
    WHERE place IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS vectorforge.answer_streams_by_bytes;
CREATE INDEX CONCURRENTLY answer_streams_by_bytes ON vectorforge.answer_streams (tenant_id, bytes_before)
    WHERE bytes_before IS NOT NULL;
CALL vectorforge.count_texts();
