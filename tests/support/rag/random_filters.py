"""Random metadata and filters, for comparing implementations of filters."""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

Metadata = Mapping[str, Any]

POOL: Final[Sequence[Any]] = [
    *(None, True, False, 0, 1, -1, 2, 1.0, 0.5, -0.0, 2024, 10**23, 1e23, 2**53 + 1, 1e300, 5e-324),
    *("2024", "1", "true", "null", "a", "b", "ab", "A", "B", "\u00e4", "", " ", "0"),
    *('"', "\\", "{}", "\U0001f98a", "' OR true --", "%(tenant)s", "$1"),
]
"""Few values, so that filters often match; each tests typing, collation, escaping or numbers."""
NAMES: Final[Sequence[str]] = ["a", "b", "0", "\u00e4 b", "k\\", "' OR true --", "%s"]
UNREACHABLE_NAMES: Final[Sequence[str]] = ["a.b", "$eq", ""]
"""Valid metadata names that no filter can address."""
_MAX_DEPTH: Final = 3
_ORDER: Final = ["$gt", "$gte", "$lt", "$lte"]


def random_metadata(generator: random.Random) -> dict[str, Any]:
    """Make metadata of up to eight names, with lists and objects up to three deep."""
    names = generator.sample([*NAMES, *UNREACHABLE_NAMES], generator.randrange(9))
    return {name: _value(generator, 1) for name in names}


def _value(generator: random.Random, depth: int) -> Any:
    kind = generator.random()
    if kind < 0.55 or depth > _MAX_DEPTH:
        return generator.choice(POOL)
    if kind < 0.77:
        return [_value(generator, depth + 1) for _ in range(generator.randrange(4))]
    names = generator.sample([*NAMES, "a.b"], generator.randrange(4))
    return {name: _value(generator, depth + 1) for name in names}


class RandomFilters:
    """Makes filters for given metadata.

    Most keys and operands come from the stored metadata, so that conditions match some of it; the others
    from ``POOL``, or with other lengths and types.

    Args:
        generator: Random source; equal seeds make equal filters.
        stored: The metadata to be filtered.
    """

    def __init__(self, generator: random.Random, stored: Sequence[Metadata]) -> None:
        self._generator = generator
        self._found = [pair for entry in stored for pair in _paths(entry)]

    def make(self, depth: int = 1) -> dict[str, Any]:
        """Return a valid filter of one to about twenty conditions, at most four deep."""
        chance = self._generator
        conditions: dict[str, Any] = {}
        for _ in range(chance.choice([1, 1, 1, 1, 2])):
            kind = chance.random()
            if depth > _MAX_DEPTH or kind < 0.6:
                key, stored = self._place()
                conditions[key] = self._condition(stored)
            elif kind < 0.75:
                conditions["$not"] = self.make(depth + 1)
            else:
                name = chance.choice(["$and", "$or", "$or"])
                conditions[name] = [self.make(depth + 1) for _ in range(chance.randint(1, 3))]
        return conditions

    def _place(self) -> tuple[str, Any]:
        """Return a key and a value stored there in some of the metadata."""
        if self._generator.random() < 0.9 and self._found:
            return self._generator.choice(self._found)
        names = [self._generator.choice([*NAMES, "missing"]) for _ in range(self._generator.randint(1, 3))]
        return ".".join(names), self._generator.choice(POOL)

    def _condition(self, stored: Any) -> Any:
        chance = self._generator
        kind = chance.random()
        if kind < 0.2:
            return self._operand(stored)
        if kind < 0.3:
            return {"$not": self._operators(stored)}
        return self._operators(stored)

    def _operators(self, stored: Any) -> dict[str, Any]:
        chance = self._generator
        chosen: dict[str, Any] = {}
        suiting = ["$contains"] if isinstance(stored, str | list) or chance.random() < 0.2 else []
        for _ in range(chance.choice([1, 1, 1, 1, 2])):
            name = chance.choice(["$eq", "$ne", "$in", "$nin", "$exists", *suiting, *_ORDER])
            chosen[name] = self._operand_of(name, stored)
        return chosen

    def _operand_of(self, name: str, stored: Any) -> Any:
        chance = self._generator
        if name == "$exists":
            return chance.random() < 0.6
        if name in ("$in", "$nin"):
            return [self._scalar(stored) for _ in range(chance.choice([0, 1, 2, 3, 12]))]
        if name == "$contains":
            return self._part(stored)
        if name in _ORDER:
            value = self._scalar(stored)
            return chance.choice([0, 1.5, "a", "2024"]) if value is None or isinstance(value, bool) else value
        return self._operand(stored)

    def _operand(self, stored: Any) -> Any:
        """Return a scalar or a list of scalars, if possible the stored value or an element of it."""
        chance = self._generator
        if isinstance(stored, list) and not any(isinstance(part, list | dict) for part in stored):
            whole = list(stored)
            return chance.choice([whole, whole[::-1], whole[:-1], self._scalar(stored)])
        return [self._scalar(stored)] if chance.random() < 0.1 else self._scalar(stored)

    def _scalar(self, stored: Any) -> Any:
        chance = self._generator
        if isinstance(stored, list) and stored:
            stored = chance.choice(stored)
        if isinstance(stored, list | dict) or chance.random() < 0.25:
            return chance.choice([*POOL, chance.uniform(-3, 3), chance.randint(-(10**30), 10**30)])
        return stored

    def _part(self, stored: Any) -> Any:
        """Return a substring of a string, or an element of a list."""
        if isinstance(stored, str) and self._generator.random() < 0.8:
            start = self._generator.randint(0, len(stored))
            return stored[start : self._generator.randint(start, len(stored))]
        return self._scalar(stored)


def _paths(metadata: Metadata, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every key that a filter can address, with the value stored there."""
    for name, value in metadata.items():
        if name and "." not in name and not f"{prefix}{name}".startswith("$"):
            yield f"{prefix}{name}", value
            if isinstance(value, Mapping):
                yield from _paths(value, f"{prefix}{name}.")
