-- no-transaction
-- For the list of files of the purpose user_data, which few files have. The first statement removes an invalid index that an
-- interrupted attempt has left.
DROP INDEX CONCURRENTLY IF EXISTS vectorforge.uploaded_files_of_users;
CREATE INDEX CONCURRENTLY uploaded_files_of_users ON vectorforge.uploaded_files (tenant_id, id) WHERE purpose = 'user_data';
