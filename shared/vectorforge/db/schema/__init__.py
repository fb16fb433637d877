"""Schema of the database: migrations, checks, vector indexes."""
