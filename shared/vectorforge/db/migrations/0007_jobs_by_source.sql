-- A client that has uploaded a file looks for the job of its document.
SET LOCAL ROLE vectorforge_migrator;

-- Hash indexes, because a source may be longer than an entry of a btree.
CREATE INDEX ingestion_job_items_by_source ON vectorforge.ingestion_job_items USING hash (source);
CREATE INDEX ingestion_job_items_by_parent ON vectorforge.ingestion_job_items USING hash (parent_source)
    WHERE parent_source IS NOT NULL;
