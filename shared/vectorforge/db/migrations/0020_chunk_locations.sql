-- Places of a chunk in its original file: pages with rectangles, slides, ranges of sheets, or its heading. Not part of
-- metadata, whose index would hold every number of a rectangle.
SET LOCAL ROLE vectorforge_migrator;

ALTER TABLE vectorforge.chunks ADD COLUMN locations jsonb NOT NULL DEFAULT '[]';
