"""Fields at fault, from pydantic's errors, in the terms of the caller."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from vectorforge.api.error_schemas import FieldProblem

_MAX_FIELD_CHARS = 200
_JSON_TERMS = (
    ("valid tuple", "valid list"),
    ("Tuple should", "List should"),
    ("Dictionary should", "Object should"),
    (" after validation", ""),
)
_CHUNK_COUNTS = {"k", "top_k", "n_results"}
"""Names of the number of chunks, one on each API surface."""
_LIMIT_KEYS = ("ge", "gt", "le", "lt", "max_length", "min_length", "limit")


def as_written(error: Mapping[str, Any], body: Any) -> Sequence[Any]:
    """Return the location of an error without parts that the body lacks, such as the types of a union."""
    location = error["loc"]
    if location[0] != "body" or not isinstance(body, dict | list):
        return tuple(location)
    written, end = ["body"], len(location) - (error["type"] == "missing")
    for part in location[1:end]:
        if part in (body if isinstance(body, dict) else range(len(body)) if isinstance(body, list) else ()):
            written.append(part)
            body = body[part]
    return [*written, *location[end:]]


def field_problem(error: Mapping[str, Any], known: Collection[str]) -> FieldProblem:
    """Return field, message and limit of a pydantic error, without the value, which may be secret or huge."""
    location = [str(part) for part in error["loc"]]
    if len(location) > 1 and location[0] in ("body", "query", "path", "header"):
        location = location[1:]
    context = error.get("ctx") or {}
    limits = [context[key] for key in _LIMIT_KEYS if key in context]
    return FieldProblem(
        field=printable(".".join(location)),
        message=printable(_message_of(error, location, context.get("known", known)), 300),
        limit=limits[0] if limits and isinstance(limits[0], int | float) else None,
    )


def _message_of(error: Mapping[str, Any], location: Sequence[str], known: Collection[str]) -> str:
    if error["type"] == "extra_forbidden":
        from difflib import get_close_matches

        name, names = location[-1][:_MAX_FIELD_CHARS], known if len(location) == 1 else ()
        similar = (
            sorted(_CHUNK_COUNTS & set(names)) if name in _CHUNK_COUNTS else get_close_matches(name, names, 1)
        )
        listed = f" Known: {', '.join(sorted(names))}." if names and "ctx" in error else ""
        return f"This field is unknown.{f' Did you mean `{similar[0]}`?' if similar else listed}"
    if error["type"] == "missing":
        return "This field is required."
    if error["type"] in ("dict_type", "model_type", "model_attributes_type"):
        return "Input should be an object"
    message = str(error["msg"]).removeprefix("Value error, ")
    for python, term in _JSON_TERMS:
        message = message.replace(python, term)
    return message


def printable(text: str, length: int = _MAX_FIELD_CHARS) -> str:
    """Return a name or message, which may hold the caller's text, bounded and safe to encode."""
    return text[:length].encode("utf-8", "replace").decode("utf-8")
