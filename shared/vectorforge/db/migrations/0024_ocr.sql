-- Recognition of pages without a text layer; docs/use/file-types.md.
SET LOCAL ROLE vectorforge_migrator;

ALTER TABLE vectorforge.collections ADD COLUMN ocr boolean NOT NULL DEFAULT false;
