"""Partitions with an HNSW index although they are small, for tests of searches through one."""

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
    """Give every partition that is made in this database from now on its index.

    Args:
        conninfo: Of a superuser; nothing else may create tables in the database meanwhile.
    """
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(_INDEX_NEW_SPACES)


def index_space(conninfo: str, space: str) -> None:
    """Give one partition its index, if it has none.

    Args:
        conninfo: Of a superuser.
        space: Such as ``cosine_384``.
    """
    with psycopg.connect(conninfo, autocommit=True) as connection:
        made = connection.execute("SELECT vectorforge.vector_index_statement(%s, false)", (space,)).fetchone()
        if made is not None and made[0] is not None:
            connection.execute(made[0])
