-- How much room the answers under an Idempotency-Key take, since a tenant has only so much.
SET LOCAL ROLE vectorforge_migrator;

ALTER TABLE vectorforge.answer_streams
    -- of the batches; answers of versions before this one count as 0
    ADD COLUMN stored_bytes bigint NOT NULL DEFAULT 0 CHECK (stored_bytes >= 0);
