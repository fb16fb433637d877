-- Answers that are kept under an Idempotency-Key, beside those for readers who come back: the same rows and batches.
SET LOCAL ROLE vectorforge_migrator;

ALTER TABLE vectorforge.answer_streams
    -- sha256 of the key; null: it was asked for without one, or its answer is not to be given again
    ADD COLUMN idempotency_key bytea CHECK (octet_length(idempotency_key) = 32),
    -- sha256 of the request that the key came with
    ADD COLUMN fingerprint bytea CHECK (octet_length(fingerprint) = 32),
    -- of the streamed response; null: it is JSON
    ADD COLUMN response_headers jsonb CHECK (jsonb_typeof(response_headers) = 'object'),
    -- whether its events may be asked for by the query's id
    ADD COLUMN is_resumable boolean NOT NULL DEFAULT true;
