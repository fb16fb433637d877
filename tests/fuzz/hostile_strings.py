"""Thirty strings that would reach another tenant's rows if values became SQL or isolation failed."""

from collections.abc import Sequence
from typing import Any, Final

VALUES: Final[Sequence[str]] = (
    "' OR true --",
    "'; SELECT text FROM vectorforge.chunks; --",
    "') OR tenant_id <> '' --",
    "%(tenant)s' OR '1'='1",
    "%s OR 1=1",
    "$1; COMMIT; SELECT 1",
    "{tenant_id}",
    "\\' OR 1=1 --",
    '"tenant_id" = "tenant_id"',
    "metadata->>'x' = 'x' OR true",
    "$[*] ? (@ == @)",
    "' || (SELECT string_agg(text, ',') FROM vectorforge.chunks) || '",
    "alice' UNION ALL SELECT text FROM vectorforge.documents --",
    "\u02bc OR true --",
    "*:* | !!('a') & <-> \\",
)
"""Strings to send as names, keys, operands, words, sources and ids."""

_TELLING: Final = (
    "CREATE FUNCTION pg_temp.told(t text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS"
    " 'BEGIN RAISE NOTICE ''%', t; RETURN true; END';"
    "SELECT 1 FROM vectorforge.chunks WHERE pg_temp.told(text)"
)
"""A function so cheap that the planner would call it first without the policy."""

STATEMENTS: Final[Sequence[str]] = (
    "SELECT * FROM vectorforge.chunks",
    "SELECT tenant_id, text FROM vectorforge.documents WHERE tenant_id = {alice} OR true",
    "SET row_security = off; SELECT * FROM vectorforge.chunks",
    "SET ROLE vectorforge_migrator; SELECT * FROM vectorforge.chunks",
    "SET SESSION AUTHORIZATION postgres; SELECT * FROM vectorforge.chunks",
    "ALTER TABLE vectorforge.chunks DISABLE ROW LEVEL SECURITY",
    "DROP POLICY tenant ON vectorforge.chunks",
    "CREATE POLICY all_rows ON vectorforge.chunks USING (true)",
    _TELLING,
    "SELECT 1 FROM vectorforge.documents WHERE 1 / (length(text) - length(text)) > 0 AND tenant_id = {alice}",
    "SELECT most_common_vals::text FROM pg_stats WHERE schemaname = 'vectorforge'",
    "SELECT stavalues1::text FROM pg_statistic",
    "UPDATE vectorforge.documents SET title = 'mine' RETURNING *",
    "DELETE FROM vectorforge.documents WHERE tenant_id = {alice} RETURNING *",
    "COPY vectorforge.chunks TO PROGRAM 'cat'",
)
"""Statements of the app's role in another tenant's transaction; ``{alice}`` is the target tenant."""


def filters_of(text: str) -> list[dict[str, Any]]:
    """Return filters with the string as key, operand and operator."""
    return [
        {text: "x"},
        {"kind": text},
        {"kind": {"$contains": text}},
        {"$or": [{"kind": {"$in": [text]}}, {f"a.{text}": {"$ne": text}}]},
        {"kind": {text: "x"}},
    ]
