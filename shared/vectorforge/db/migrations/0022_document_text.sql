-- A document's whole text was compressed by pglz, which took as long as storing its passages. lz4 takes a tenth of that;
-- a server built without it keeps new texts as they are, and parts of them are read without unpacking the whole.
SET LOCAL ROLE vectorforge_migrator;

DO $$
BEGIN
    IF (SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression') THEN
        ALTER TABLE vectorforge.documents ALTER COLUMN text SET COMPRESSION lz4;
    ELSE
        ALTER TABLE vectorforge.documents ALTER COLUMN text SET STORAGE EXTERNAL;
    END IF;
END
$$;
