"""A validated metadata filter as an immutable tree, and what it means; the grammar is in ``filters``."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

Scalar: TypeAlias = bool | int | float | str | None
ComparisonOperator: TypeAlias = Literal["$gt", "$gte", "$lt", "$lte"]
Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Equals:
    """The value is equal, or is a list with an equal element; a tuple equals only the same whole list."""

    path: Path
    value: Scalar | tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class In:
    """The value, or one of its elements, is equal to one of these."""

    path: Path
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Compare:
    """The value has the operand's type and is greater or less."""

    path: Path
    operator: ComparisonOperator
    value: int | float | str


@dataclass(frozen=True, slots=True)
class Contains:
    """The value is a list with this element or a string with this substring."""

    path: Path
    value: Scalar


@dataclass(frozen=True, slots=True)
class Exists:
    """The key is stored, whatever its value."""

    path: Path


@dataclass(frozen=True, slots=True)
class And:
    """Every condition holds; without conditions, always."""

    conditions: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One condition holds."""

    conditions: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The condition does not hold."""

    condition: "Filter"


Filter: TypeAlias = Equals | In | Compare | Contains | Exists | And | Or | Not
"""A validated filter: immutable, within the limits above."""


def matches(condition: Filter, metadata: Mapping[str, Any]) -> bool:
    """Evaluate a filter on one chunk's metadata: the reference every adapter is compared with.

    Returns:
        Whether the filter holds.
    """
    match condition:
        case And(conditions):
            return all(matches(part, metadata) for part in conditions)
        case Or(conditions):
            return any(matches(part, metadata) for part in conditions)
        case Not(part):
            return not matches(part, metadata)
        case _:
            stored = _lookup(metadata, condition.path)
            return stored is not _MISSING and _holds(condition, stored)


_MISSING: Final = object()
_ORDER: Final[Mapping[ComparisonOperator, Callable[[Any, Any], bool]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def _lookup(metadata: Mapping[str, Any], path: Path) -> Any:
    value: Any = metadata
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return _MISSING
        value = value[name]
    return value


def _holds(condition: Equals | In | Compare | Contains | Exists, stored: Any) -> bool:
    match condition:
        case Exists():
            return True
        case Equals(_, operand):
            return _equal(stored, operand) if isinstance(operand, tuple) else _is_or_has(stored, operand)
        case In(_, operands):
            return any(_is_or_has(stored, operand) for operand in operands)
        case Contains(_, operand):
            if isinstance(stored, str):
                return isinstance(operand, str) and operand in stored
            return isinstance(stored, list | tuple) and _is_or_has(stored, operand)
        case Compare(_, name, operand):
            left, right = _typed(stored), _typed(operand)
            return left[0] == right[0] and left[0] in ("number", "string") and _ORDER[name](left[1], right[1])


def _is_or_has(stored: Any, operand: Scalar) -> bool:
    if isinstance(stored, list | tuple):
        return any(_equal(element, operand) for element in stored)
    return _equal(stored, operand)


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_equal, left, right))
    return _typed(left) == _typed(right)


def _typed(value: Any) -> tuple[str, Any]:
    """Return the value with its JSON type; numbers by their decimal text, as in JSON and PostgreSQL."""
    if value is None or isinstance(value, bool):
        return "constant", value
    if isinstance(value, float):
        return "number", Decimal(float.__repr__(value))
    if isinstance(value, int):
        return "number", Decimal(int(value))
    if isinstance(value, str):
        return "string", str.__str__(value)
    return "structure", object()  # lists and objects equal no scalar
