"""Statements as libpq takes them: the driver's placeholders become PostgreSQL's, once for each text."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.adapt import PyFormat

from vectorforge.db.tenant_database import Params

_PLACEHOLDER = re.compile(r"%(?:%|(?:\((?P<name>\w+)\))?(?P<format>[sbt]))")
_FORMATS = {"s": PyFormat.AUTO, "b": PyFormat.BINARY, "t": PyFormat.TEXT}


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement's text with ``$1``, ``$2`` and so on in place of the driver's placeholders.

    The driver itself converts a text of more than 4,096 characters at every execution, as those of searches
    are. What the placeholders mean: https://www.psycopg.org/psycopg3/docs/basic/params.html.
    """

    text: bytes
    formats: tuple[PyFormat, ...]
    """Of the values, in their order."""
    names: tuple[str, ...] | None
    """Of the values, in their order; None: they are known by their places."""
    columns: list[str] = field(default_factory=list, compare=False)
    """Names of its results' columns, once it has given some: a statement's are always the same."""

    def values(self, params: Params) -> Sequence[Any]:
        """The values in the statement's order; named ones that it does not ask for are left out.

        Raises:
            psycopg.ProgrammingError: One is missing, or there are too many by place.
        """
        if self.names is not None and isinstance(params, Mapping):
            try:
                return [params[name] for name in self.names]
            except KeyError as exc:
                raise psycopg.ProgrammingError("A value of the statement is missing.") from exc
        if isinstance(params, Mapping) and not self.formats:
            return ()
        if self.names is not None or isinstance(params, Mapping) or len(params) != len(self.formats):
            raise psycopg.ProgrammingError("The values are not those of the statement.")
        return params


@lru_cache(maxsize=256)
def compiled(query: str) -> Statement:
    """The statement of a text with the driver's placeholders."""
    places: dict[str, int] = {}
    formats: list[PyFormat] = []
    is_named = False

    def replacement(match: re.Match[str]) -> str:
        nonlocal is_named
        if match["format"] is None:
            return "%"
        is_named = is_named or match["name"] is not None
        place = places.setdefault(match["name"] or f"{len(formats)}", len(formats))
        if place == len(formats):
            formats.append(_FORMATS[match["format"]])
        return f"${place + 1}"

    text = _PLACEHOLDER.sub(replacement, query).encode()
    return Statement(text, tuple(formats), tuple(places) if is_named else None)
