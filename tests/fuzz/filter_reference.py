"""Reference evaluator of filters, as docs/use/filters.md defines them.

It shares no code with the product, whose own evaluator uses the product's parser.
"""

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

Stored = Sequence[Any]
"""The values of a key: one, or none if it is not stored."""


def holds(filters: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    """Return whether a valid filter matches this metadata."""
    return all(_entry(key, condition, metadata) for key, condition in filters.items())


def _entry(key: str, condition: Any, metadata: Mapping[str, Any]) -> bool:
    match key:
        case "$and":
            return all(holds(part, metadata) for part in condition)
        case "$or":
            return any(holds(part, metadata) for part in condition)
        case "$not":
            return not holds(condition, metadata)
    return _field(_stored(metadata, key.split(".")), condition)


def _stored(value: Any, names: Sequence[str]) -> Stored:
    if not names:
        return [value]
    return _stored(value[names[0]], names[1:]) if isinstance(value, dict) and names[0] in value else []


def _field(stored: Stored, condition: Any) -> bool:
    if not isinstance(condition, dict):
        return _equals(stored, condition)
    return all(_OPERATORS[name](stored, operand) for name, operand in condition.items())


def _equals(stored: Stored, operand: Any) -> bool:
    return any(_same(value, operand) or _has(value, operand) for value in stored)


def _has(value: Any, operand: Any) -> bool:
    """Return whether a list has this scalar."""
    return (
        isinstance(value, list)
        and not isinstance(operand, list)
        and any(_same(element, operand) for element in value)
    )


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if _is_number(left) and _is_number(right):
        return _number(left) == _number(right)
    return type(left) is type(right) and not isinstance(left, dict | list) and left == right


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: float) -> Decimal:
    return Decimal(json.dumps(value))


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Stored, Any], bool]:
    def test(stored: Stored, operand: Any) -> bool:
        for value in stored:
            if isinstance(value, str) and isinstance(operand, str):
                return compare(value, operand)
            if _is_number(value) and _is_number(operand):
                return compare(_number(value), _number(operand))
        return False

    return test


def _contains(stored: Stored, operand: Any) -> bool:
    for value in stored:
        if isinstance(value, str):
            return isinstance(operand, str) and operand in value
    return any(_has(value, operand) for value in stored)


def _in(stored: Stored, operands: Sequence[Any]) -> bool:
    return any(_equals(stored, operand) for operand in operands)


_OPERATORS: Final[Mapping[str, Callable[[Stored, Any], bool]]] = {
    "$eq": _equals,
    "$ne": lambda stored, operand: not _equals(stored, operand),
    "$in": _in,
    "$nin": lambda stored, operands: not _in(stored, operands),
    "$gt": _ordered(operator.gt),
    "$gte": _ordered(operator.ge),
    "$lt": _ordered(operator.lt),
    "$lte": _ordered(operator.le),
    "$contains": _contains,
    "$exists": lambda stored, operand: bool(stored) is operand,
    "$not": lambda stored, condition: not _field(stored, condition),
}
