"""Metadata filters: their grammar and the parser.

A filter is a JSON object. All of its keys must hold (AND)::

    filter     = { key: condition, ..., "$and": [filter, ...], "$or": [filter, ...], "$not": filter }
    condition  = value | { operator: operand, ... }          all operators must hold
    key        = name { "." name }                           a dot descends into a nested object
    value      = string | number | true | false | null | [scalar, ...]

==============  ======================  ==================================================================
operator        operand                 holds when the key is stored and its value ...
==============  ======================  ==================================================================
``$eq``         scalar or list          is equal; a plain value means the same
``$in``         list of scalars         is equal to one of the operands
``$gt`` ``$gte``
``$lt`` ``$lte``  number or string      is of the same type and greater / less
``$contains``   scalar                  is a list with that element, or a string with that substring
``$exists``     true or false           ``true``: whatever the value, even null; ``false``: is *not* stored
``$ne``         as ``$eq``              exactly where ``$eq`` does not hold, so also where the key is missing
``$nin``        as ``$in``              exactly where ``$in`` does not hold, so also where the key is missing
``$not``        { operator: operand }   exactly where the operators do not hold, so also where it is missing
==============  ======================  ==================================================================

Equality is typed: ``"2024"`` is not ``2024``, ``true`` is not ``1``, ``1`` is ``1.0``, null is only null.
A scalar also equals a stored list that has it as an element; a list equals only the same list in the same
order. Numbers compare by their decimal value, strings by code point, case-sensitive; anything else
(a list, a boolean, a number with a string) is neither greater nor less. Dots never descend into lists.

An absent or empty filter holds for everything. An empty object *inside* a filter is an error, because it
would silently turn "some" into "all".
"""

import marshal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from vectorforge.errors import FilterError
from vectorforge.vectorstore.filters.language import (
    And,
    Compare,
    ComparisonOperator,
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
from vectorforge.vectorstore.filters.sql import sql_length

MAX_DEPTH: Final = 8
"""Filters inside filters, the outermost counted as 1."""
MAX_CONDITIONS: Final = 100
"""Operators in one filter, counted over all keys."""
MAX_KEY_LENGTH: Final = 200
"""Characters of a dotted key."""
MAX_NESTING: Final = 10
"""Names in a dotted key."""
MAX_LIST_LENGTH: Final = 1_000
"""Values in one list."""
MAX_STRING_LENGTH: Final = 2_000
"""Characters of a string operand."""
MAX_NUMBER: Final = sys.float_info.max
"""Largest magnitude of a number: a double's."""
MAX_SQL_LENGTH: Final = 12_000
"""Characters of the whole filter as SQL, enough for 50 ``$contains``, 70 ``$in`` or 99 comparisons. A
statement over 16 KB pins a database connection of RDS Proxy to its client until it disconnects.
https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-proxy.html#rds-proxy.limitations"""

_WITHOUT_REFERENCES: Final = 2
"""Version of marshal's format in which equal values are written alike."""
_MAX_CACHED_BYTES: Final = 1_000
"""Maximum size of a cached filter: most requests use one of a few short ones."""


def parse(filters: Mapping[str, Any] | None) -> Filter:
    """Validate a filter once.

    Args:
        filters: The filter as JSON gave it; None and ``{}`` hold for everything.

    Returns:
        The same condition as an immutable tree.

    Raises:
        FilterError: Unknown operator, operand of a wrong type, or a limit exceeded; its text and ``field``
            name the key and the operator.
    """
    if filters is None:
        return And(())
    try:
        written = marshal.dumps(filters, _WITHOUT_REFERENCES)  # type: ignore[arg-type] # or a ValueError
    except ValueError:  # holds what JSON does not
        return _parse(filters)
    return _parse(filters) if len(written) > _MAX_CACHED_BYTES else _parse_cached(written)


@lru_cache(maxsize=256)
def _parse_cached(written: bytes) -> Filter:
    # By its bytes, because 1, 1.0 and true are equal for a dict, and not in a filter.
    return _parse(marshal.loads(written))  # noqa: S302 - written by this process


def _parse(filters: Mapping[str, Any]) -> Filter:
    condition = _Parser().filter(filters, depth=1, where="filters", may_be_empty=True)
    length = sql_length(condition)
    if length > MAX_SQL_LENGTH:
        raise _error(
            "filters",
            f"has {length} characters as SQL; at most {MAX_SQL_LENGTH} are allowed: "
            "write fewer conditions or shorter dotted keys",
        )
    return condition


class _Parser:
    """One pass over one filter; counts its conditions."""

    def __init__(self) -> None:
        self._conditions = 0

    def filter(self, raw: object, *, depth: int, where: str, may_be_empty: bool = False) -> Filter:
        if not isinstance(raw, Mapping):
            raise _error(where, "must be an object")
        if not raw and not may_be_empty:
            raise _error(where, "must not be an empty object")
        if depth > MAX_DEPTH:
            raise _error(where, f"is nested deeper than {MAX_DEPTH} levels")
        parts = tuple(self._entry(key, value, depth=depth, where=where) for key, value in raw.items())
        return parts[0] if len(parts) == 1 else And(parts)

    def _entry(self, key: object, value: object, *, depth: int, where: str) -> Filter:
        path_of_value = f"{where}.{_shown(key)}"
        if not isinstance(key, str):
            raise _error(path_of_value, "must have a string as its key")
        if key == "$not":
            self._count(path_of_value)
            return Not(self.filter(value, depth=depth + 1, where=path_of_value))
        if key in ("$and", "$or"):
            self._count(path_of_value)
            parts = tuple(
                self.filter(part, depth=depth + 1, where=f"{path_of_value}[{position}]")
                for position, part in enumerate(_sequence(value, path_of_value, least=1))
            )
            return And(parts) if key == "$and" else Or(parts)
        if key.startswith("$"):
            raise _error(path_of_value, "is not a known operator here; known: $and, $or, $not")
        return self._field(_path(key, path_of_value), value, depth=depth, where=path_of_value)

    def _field(self, path: Path, condition: object, *, depth: int, where: str) -> Filter:
        if not isinstance(condition, Mapping):
            self._count(where)
            return Equals(path, _operand(condition, where))
        if not condition:
            raise _error(where, "must not be an empty object")
        parts = tuple(
            self._operator(path, name, operand, depth=depth, where=f"{where}.{_shown(name)}")
            for name, operand in condition.items()
        )
        return parts[0] if len(parts) == 1 else And(parts)

    def _operator(self, path: Path, name: object, operand: object, *, depth: int, where: str) -> Filter:
        self._count(where)
        if name == "$not":
            if not isinstance(operand, Mapping):
                raise _error(where, "must be an object of operators; for one value use $ne")
            if depth >= MAX_DEPTH:
                raise _error(where, f"is nested deeper than {MAX_DEPTH} levels")
            return Not(self._field(path, operand, depth=depth + 1, where=where))
        build = _OPERATORS.get(name) if isinstance(name, str) else None
        if build is None:
            hint = "" if isinstance(name, str) and name.startswith("$") else " (a nested key is written a.b)"
            raise _error(where, f"is not a known operator{hint}; known: {', '.join(_OPERATORS)}, $not")
        return build(path, operand, where)

    def _count(self, where: str) -> None:
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            raise _error(where, f"is one condition too many: a filter has at most {MAX_CONDITIONS}")


def _error(where: str, problem: str) -> FilterError:
    return FilterError(f"{where} {problem}.", field=where)


def _shown(name: object) -> str:
    """Return the key for an error text: short and encodable."""
    text = name if isinstance(name, str) else type(name).__name__
    text = text if len(text) <= 60 else text[:60] + "..."
    return "".join(character if character.isprintable() else "?" for character in text)


def _path(key: str, where: str) -> Path:
    if len(key) > MAX_KEY_LENGTH:
        raise _error(where, f"has a key of {len(key)} characters; at most {MAX_KEY_LENGTH} are allowed")
    path = tuple(_text(key, where).split("."))
    if len(path) > MAX_NESTING:
        raise _error(where, f"has {len(path)} names in its dotted key; at most {MAX_NESTING} are allowed")
    if not all(path):
        raise _error(where, "has an empty name in its dotted key")
    return path


def _text(value: str, where: str) -> str:
    text = str.__str__(value)
    if len(text) > MAX_STRING_LENGTH:
        raise _error(where, f"has {len(text)} characters; at most {MAX_STRING_LENGTH} are allowed")
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise _error(where, "holds a character that cannot be stored (NUL or half of a surrogate pair)")
    return text


def _scalar(value: object, where: str) -> Scalar:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, where)
    if isinstance(value, int | float):
        if not abs(value) <= MAX_NUMBER:  # "not <=" is also true of NaN
            raise _error(where, "must be a finite number within the range of a double")
        return float(value) if isinstance(value, float) else int(value)
    raise _error(where, "must be a string, a number, true, false or null")


def _sequence(value: object, where: str, *, least: int = 0) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise _error(where, "must be a list")
    if not least <= len(value) <= MAX_LIST_LENGTH:
        raise _error(where, f"must be a list of {least} to {MAX_LIST_LENGTH} values, not {len(value)}")
    return value


def _scalars(value: object, where: str) -> tuple[Scalar, ...]:
    return tuple(
        _scalar(part, f"{where}[{position}]") for position, part in enumerate(_sequence(value, where))
    )


def _operand(value: object, where: str) -> Scalar | tuple[Scalar, ...]:
    return _scalars(value, where) if isinstance(value, list | tuple) else _scalar(value, where)


def _compare(operator: ComparisonOperator) -> "_Build":
    def build(path: Path, operand: object, where: str) -> Filter:
        value = _scalar(operand, where)
        if value is None or isinstance(value, bool):
            raise _error(where, "must be a number or a string")
        return Compare(path, operator, value)

    return build


def _exists(path: Path, operand: object, where: str) -> Filter:
    if not isinstance(operand, bool):
        raise _error(where, "must be true or false")
    return Exists(path) if operand else Not(Exists(path))


_Build: TypeAlias = Callable[[Path, object, str], Filter]

_OPERATORS: Final[Mapping[str, _Build]] = {
    "$eq": lambda path, operand, where: Equals(path, _operand(operand, where)),
    "$ne": lambda path, operand, where: Not(Equals(path, _operand(operand, where))),
    "$gt": _compare("$gt"),
    "$gte": _compare("$gte"),
    "$lt": _compare("$lt"),
    "$lte": _compare("$lte"),
    "$in": lambda path, operand, where: In(path, _scalars(operand, where)),
    "$nin": lambda path, operand, where: Not(In(path, _scalars(operand, where))),
    "$exists": _exists,
    "$contains": lambda path, operand, where: Contains(path, _scalar(operand, where)),
}
