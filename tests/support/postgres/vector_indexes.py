"""HNSW indexes on small partitions, for tests of index searches."""

import psycopg

_INDEX_NEW_SPACES = """
CREATE FUNCTION public.index_new_space() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE
    made record;
BEGIN
    FOR made IN
        SELECT substring(object_identity FROM '^vectorforge\\.embeddings_(.*)$') AS space
        FROM pg_event_trigger_ddl_commands() WHERE command_tag = 'CREATE TABLE' AND object_type = 'table'
    LOOP
        EXECUTE coalesce(vectorforge.vector_index_statement(made.space, false), 'SELECT 1');
    END LOOP;
END
$$;
ALTER FUNCTION public.index_new_space() SECURITY DEFINER;
CREATE EVENT TRIGGER index_new_space ON ddl_command_end
    WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION public.index_new_space()
"""


def index_new_spaces(conninfo: str) -> None:
    """Create the index of every partition that is created in this database from now on.

    Args:
        conninfo: Connection string of a superuser; nothing else may create tables in the database meanwhile.
    """
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(_INDEX_NEW_SPACES)


def index_space(conninfo: str, space: str) -> None:
    """Create the index of one partition unless it exists.

    Args:
        conninfo: Connection string of a superuser.
        space: Vector space, e.g. ``cosine_384``.
    """
    with psycopg.connect(conninfo, autocommit=True) as connection:
        made = connection.execute("SELECT vectorforge.vector_index_statement(%s, false)", (space,)).fetchone()
        if made is not None and made[0] is not None:
            connection.execute(made[0])
