-- no-transaction
-- For erase_messages() (0017), which looks up the messages of each page of the query log. The first statement removes
-- an invalid index that an interrupted attempt has left.
DROP INDEX CONCURRENTLY IF EXISTS vectorforge.conversation_messages_by_query;
CREATE INDEX CONCURRENTLY conversation_messages_by_query ON vectorforge.conversation_messages (tenant_id, query_id);
