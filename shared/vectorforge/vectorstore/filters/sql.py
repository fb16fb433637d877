"""Filters as SQL over a jsonb column, and their necessary condition for the index over metadata.

Keys and values are parameters only. Each condition means the same as in ``language.matches``; a differential
test compares the two.
"""

import json
import re
from typing import Any, Final, NamedTuple
from uuid import UUID

from vectorforge.vectorstore.filters.language import (
    And,
    Compare,
    Contains,
    Equals,
    Exists,
    Filter,
    In,
    Not,
    Or,
    Path,
    Scalar,
)

_MOST_VALUES: Final = 50
"""Maximum values of one ``$in``: each is compared with every chunk from the index."""


class SearchFilter(NamedTuple):
    """A filter in the statements of one search."""

    sql: str
    params: dict[str, Any]
    narrowing: str | None
    """Path of the index over metadata, which all matching chunks have; None if the index cannot be used.

    The index holds hashes of whole paths with their values, the collection's id first. It supports equality
    alone, so the path contains the filter's equality conditions and ignores the rest; the filter itself is
    tested on the chunks of the path. https://www.postgresql.org/docs/current/datatype-json.html#JSON-INDEXING
    """

    @classmethod
    def of(cls, condition: Filter, collection_id: UUID) -> "SearchFilter | None":
        """Compile a filter for the search of a collection; None if it holds for everything."""
        if condition == And(()):
            return None
        compiler = FilterCompiler("f.metadata")
        # in lax mode, which looks into lists as equality does
        narrowing = _demanded(condition, f'$."{collection_id}"')
        return cls(compiler.compile(condition), compiler.params, narrowing)


def _demanded(condition: Filter, root: str) -> str | None:
    match condition:
        case Equals(path, value) if not isinstance(value, tuple):
            return _equal(root, path, value)
        case Contains(path, value) if not isinstance(value, str):  # of a text it may be a part
            return _equal(root, path, value)
        case In(path, values) if len(values) <= _MOST_VALUES:
            return _any([_equal(root, path, value) for value in values])
        case And(conditions):
            parts = [part for inner in conditions if (part := _demanded(inner, root)) is not None]
            return " && ".join(parts) or None
        case Or(conditions):
            return _any([_demanded(inner, root) for inner in conditions])
        case _:
            return None


def _any(parts: list[str | None]) -> str | None:
    """One of them; what demands nothing leaves nothing to demand."""
    known = [part for part in parts if part is not None]
    return f"({' || '.join(known)})" if known and len(known) == len(parts) else None


def _equal(root: str, path: Path, value: Scalar) -> str:
    keys = "".join(f".{json.dumps(key)}" for key in path)
    return f"({root}{keys} == {json.dumps(value)})"


_OPERATORS = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


def sql_length(condition: Filter) -> int:
    """Characters of the condition in a statement, with the driver's ``$1`` to ``$9999`` for parameters."""
    return len(re.sub(r"%\(\w+\)s", "$9999", FilterCompiler("f.metadata").compile(condition)))


class FilterCompiler:
    """Turns filters into conditions; gathers the parameters they refer to.

    Args:
        column: The jsonb column, as written in the statement.
        prefix: Start of the parameters' names.
    """

    def __init__(self, column: str, *, prefix: str = "filter_") -> None:
        self._column = column
        self._prefix = prefix
        self.params: dict[str, Any] = {}
        """Named parameters: strings and lists of strings."""

    def compile(self, condition: Filter) -> str:
        """Return a boolean SQL expression that is never NULL, in psycopg's ``%(name)s`` style."""
        match condition:
            case And(conditions):
                return f"({' AND '.join(map(self.compile, conditions))})" if conditions else "TRUE"
            case Or(conditions):
                return f"({' OR '.join(map(self.compile, conditions))})"
            case Not(part):
                return f"(NOT {self.compile(part)})"
            case _:
                # A missing key gives NULL, which NOT would keep: it must become false here.
                return f"(({self._test(condition)}) IS TRUE)"

    def _test(self, condition: Equals | In | Compare | Contains | Exists) -> str:
        stored = self._stored(condition.path)
        match condition:
            case Exists():
                return f"{stored} IS NOT NULL"
            case Equals(_, tuple() as values):
                return f"{stored} = {self._json(list(values))}"
            case Equals(_, value):
                # jsonb lets a list contain a scalar, one level deep; every other pair has to be equal.
                return f"{stored} @> {self._json(value)}"
            case In(_, values):
                return self._in(stored, values)
            case Contains(_, value):
                return self._contains(stored, value)
            case Compare(_, name, str() as text):
                # Code point order, whatever the database's collation
                return (
                    f"jsonb_typeof({stored}) = 'string' AND "
                    f"({stored} #>> '{{}}') COLLATE \"C\" {_OPERATORS[name]} {self._text(text)}"
                )
            case Compare(_, name, number):
                return (
                    f"jsonb_typeof({stored}) = 'number' AND {stored} {_OPERATORS[name]} {self._json(number)}"
                )

    def _in(self, stored: str, values: tuple[Scalar, ...]) -> str:
        # "= ANY" is hashed by the planner, so that 1,000 values cost no more than one
        operands = f"{self._add([json.dumps(value) for value in values])}::text[]::jsonb[]"
        element = f"jsonb_typeof({stored}) = 'array' AND {stored} @> ANY ({operands})"
        return f"{stored} = ANY ({operands}) OR ({element})"

    def _contains(self, stored: str, value: Scalar) -> str:
        element = f"jsonb_typeof({stored}) = 'array' AND {stored} @> {self._json(value)}"
        if not isinstance(value, str):
            return element
        text = self._text(value)
        substring = f"strpos(({stored} #>> '{{}}') COLLATE \"C\", {text}) > 0"
        return f"({element}) OR (jsonb_typeof({stored}) = 'string' AND {substring})"

    def _stored(self, path: Path) -> str:
        # "->" with text looks into objects only; "#>" would take "0" for a position in a list
        return f"({' -> '.join([self._column, *map(self._text, path)])})"

    def _json(self, value: object) -> str:
        return f"{self._add(json.dumps(value))}::jsonb"

    def _text(self, value: str) -> str:
        return f"{self._add(value)}::text"

    def _add(self, value: object) -> str:
        name = f"{self._prefix}{len(self.params)}"
        self.params[name] = value
        return f"%({name})s"
