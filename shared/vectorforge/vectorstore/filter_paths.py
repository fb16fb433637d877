"""What a filter demands at least, as a jsonpath that the index over metadata answers.

The index ``chunks_by_metadata`` holds hashes of whole paths with their values, the collection's id first. It
knows equality alone, so of a filter the path keeps what can be said by that, and lets the rest through: every
chunk that matches is among those of the path, and the filter itself is tested on these.
https://www.postgresql.org/docs/current/datatype-json.html#JSON-INDEXING
"""

import json
from typing import Final
from uuid import UUID

from vectorforge.vectorstore.filter_ast import And, Contains, Equals, Filter, In, Or, Path, Scalar

_MOST_VALUES: Final = 50
"""Of one ``$in``: each is compared with every chunk that the index gives."""


def necessary_path(condition: Filter, collection_id: UUID) -> str | None:
    """Write the path, in lax mode, which looks into lists as equality does.

    Returns:
        None where the filter demands nothing that an index knows.
    """
    return _demanded(condition, f'$."{collection_id}"')


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
