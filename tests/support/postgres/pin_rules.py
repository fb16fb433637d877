"""Rules by which RDS Proxy pins a client to a database connection: AWS's list for PostgreSQL, taken strictly.

https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-proxy-pinning.html

The list counts ``SET`` and ``set_config`` without an exception for ``SET LOCAL``, so every one counts here.
Statements in stored functions are not seen: "calling stored procedures and stored functions doesn't cause
pinning".
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache

from tests.support.postgres.sql_skeleton import skeletons

MAX_STATEMENT_BYTES = 16 * 1024
"""Longest statement text that does not pin, regardless of its content; parameters do not count.
https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-proxy.html#rds-proxy.limitations"""

ACCEPTED_PARAMETERS = frozenset({"user", "database", "application_name", "client_encoding"})
"""Startup parameters that clients are known to use. AWS publishes no list; it rejects others, such as
``options`` and ``statement_timeout``, with "RDS Proxy currently doesn't support the option ...".
https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-proxy.troubleshooting.html"""

PROTOCOL = (3, 0)
"""The only protocol version that RDS Proxy supports; from the same page."""


class PinRule(StrEnum):
    """Reason why a connection would be pinned or rejected; the values are readable text."""

    LONG_STATEMENT = "statement text over 16 KB"
    SETTING = "SET or RESET"
    SET_CONFIG = "set_config()"
    PREPARED_STATEMENT = "PREPARE, EXECUTE, DEALLOCATE or DISCARD"
    NAMED_STATEMENT = "a prepared statement with a name"
    TEMPORARY = "a temporary table, sequence or view"
    CURSOR = "a cursor"
    NOTIFICATION = "LISTEN or UNLISTEN"
    LIBRARY = "LOAD"
    SEQUENCE = "nextval(), setval(), currval() or lastval()"
    ADVISORY_LOCK = "an advisory lock of the session"
    OPAQUE = "a DO block or a call by number, which cannot be judged from outside"
    STARTUP = "a startup parameter or protocol that RDS Proxy refuses"


_START = r"^(?:explain (?:\( [^)]* \) )?(?:(?:analy[sz]e|verbose) )*)?"
"""EXPLAIN EXECUTE is an EXECUTE, too."""
_NOT_A_TABLE = r"(?!(?:from|where|group|having|order|limit|union)\b)"
"""TEMP is not a reserved word: in SELECT 1 INTO temp FROM t it is the name of an ordinary table."""


def _call_of(*functions: str) -> str:
    return rf"""(?<![\w$])"?(?:{"|".join(functions)})"? \("""


_PATTERNS = {
    rule: re.compile("|".join(patterns))
    for rule, *patterns in (
        (PinRule.SETTING, rf"{_START}(?:set|reset)\b"),
        (PinRule.SET_CONFIG, _call_of("set_config")),
        (
            PinRule.PREPARED_STATEMENT,
            rf"{_START}(?:prepare|execute|deallocate|discard)\b",
            rf"{_START}create .* as execute\b",
        ),
        (
            PinRule.TEMPORARY,
            r"^create (?:or replace )?(?:(?:local|global) )?temp(?:orary)?\b",
            rf"(?<!insert )(?<!merge )\binto (?:(?:local|global) )?temp(?:orary)? {_NOT_A_TABLE}[\w\"]",
            r"^create .*\"?pg_temp\"? \.",
            r"(?<!insert )(?<!merge )\binto \"?pg_temp\"? \.",
        ),
        (PinRule.CURSOR, rf"{_START}declare\b"),
        (PinRule.NOTIFICATION, r"^(?:un)?listen\b"),
        (PinRule.LIBRARY, r"^load\b"),
        (PinRule.SEQUENCE, _call_of("nextval", "setval", "currval", "lastval")),
        (
            PinRule.ADVISORY_LOCK,
            _call_of("pg_(?:try_)?advisory_lock(?:_shared)?", "pg_advisory_unlock(?:_shared|_all)?"),
        ),
        (PinRule.OPAQUE, r"^do\b"),
    )
}
"""Patterns of statements as ``sql_skeleton`` writes them."""


@lru_cache(maxsize=4096)  # a program sends few texts, and sends them often
def rules_of_text(text: bytes) -> frozenset[PinRule]:
    """Return the rules that the text of a statement breaks, or of several in one simple query."""
    found = {
        rule
        for skeleton in skeletons(text.decode(errors="replace"))
        for rule, pattern in _PATTERNS.items()
        if pattern.search(skeleton)
    }
    return frozenset(found | {PinRule.LONG_STATEMENT} if len(text) > MAX_STATEMENT_BYTES else found)


def refused_at_startup(version: tuple[int, int], parameters: Mapping[str, str]) -> list[str]:
    """Return the parts of a startup message that RDS Proxy would reject, as ``name=value``."""
    refused = [f"{name}={value}" for name, value in parameters.items() if name not in ACCEPTED_PARAMETERS]
    return refused if version == PROTOCOL else ["protocol={}.{}".format(*version), *refused]
