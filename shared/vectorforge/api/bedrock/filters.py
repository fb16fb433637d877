"""Filters of Bedrock's Knowledge Bases as native filters."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from vectorforge.errors import FilterError

_RESERVED: Final = "x-amz-bedrock-"
_MOST_KEY_CHARS: Final = 100
_LEAST_PARTS: Final = 2
_LAST_CHARACTER: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)


def native_filter(raw: object, where: str) -> dict[str, Any]:
    """Translate a ``RetrievalFilter``.

    Args:
        raw: JSON; its nesting must be bounded.
        where: Its field, for errors.

    Raises:
        FilterError: It is malformed or cannot be expressed; the text names the operator.
    """
    if not isinstance(raw, Mapping) or len(raw) != 1:
        raise FilterError(f"{where} must be an object with exactly one operator.", field=where)
    ((name, operand),) = raw.items()
    inside = f"{where}.{str(name)[:_MOST_KEY_CHARS]}"
    if name in _COMPOUND:
        if not isinstance(operand, list) or len(operand) < _LEAST_PARTS:
            raise FilterError(f"{inside} must be a list of at least {_LEAST_PARTS} filters.", field=inside)
        parts = [native_filter(part, f"{inside}[{n}]") for n, part in enumerate(operand)]
        return {_COMPOUND[name]: parts}
    build = _OPERATORS.get(name)
    if build is None:
        known = ", ".join([*_OPERATORS, *_COMPOUND])
        raise FilterError(f"{inside} is not a supported operator; supported: {known}.", field=inside)
    if not isinstance(operand, Mapping) or operand.keys() != {"key", "value"}:
        raise FilterError(f"{inside} must be an object with key and value.", field=inside)
    return {_key(operand["key"], inside): build(operand["value"], inside)}


def _key(key: object, inside: str) -> str:
    if not isinstance(key, str) or not 1 <= len(key) <= _MOST_KEY_CHARS or key.startswith("$"):
        raise FilterError(
            f"{inside}.key must be a string of 1 to {_MOST_KEY_CHARS} characters that does not begin with $.",
            field=f"{inside}.key",
        )
    if key.startswith(_RESERVED):
        raise FilterError(f"{inside}.key: attributes of Bedrock's own cannot be filtered.", field=inside)
    return key


def _plain(operator: str) -> "_Build":
    return lambda value, inside: {operator: value}


def _of_text(value: object, inside: str) -> str:
    if not isinstance(value, str) or not value:
        raise FilterError(f"{inside}.value must be a string that is not empty.", field=f"{inside}.value")
    return value


def _starts_with(value: object, inside: str) -> dict[str, Any]:
    """Return a range, since strings compare by code point."""
    prefix = _of_text(value, inside)
    above = prefix.rstrip(chr(_LAST_CHARACTER))
    if not above:
        return {"$gte": prefix}
    following = ord(above[-1]) + 1
    last = chr(_SURROGATES.stop if following in _SURROGATES else following)
    return {"$gte": prefix, "$lt": above[:-1] + last}


_Build = Callable[[object, str], dict[str, Any]]

_OPERATORS: Final[Mapping[str, _Build]] = {
    "equals": _plain("$eq"),
    "notEquals": _plain("$ne"),
    "greaterThan": _plain("$gt"),
    "greaterThanOrEquals": _plain("$gte"),
    "lessThan": _plain("$lt"),
    "lessThanOrEquals": _plain("$lte"),
    "in": _plain("$in"),
    "notIn": _plain("$nin"),
    "startsWith": _starts_with,
    "stringContains": lambda value, inside: {"$contains": _of_text(value, inside)},
    "listContains": _plain("$eq"),  # also an element of a list; $contains would match parts of strings
}
_COMPOUND: Final[Mapping[str, str]] = {"andAll": "$and", "orAll": "$or"}
