"""The OpenAPI document with closed responses: undocumented fields are errors."""

import copy
from collections.abc import Iterator
from typing import Any

_SCHEMAS = "#/components/schemas/"


def closed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a copy in which objects of responses have no properties other than the listed ones.

    Schemas that requests also use stay unchanged, and so do objects that define additional properties.
    """
    made = copy.deepcopy(document)
    operations = [one for methods in made["paths"].values() for one in methods.values()]
    sent = _reached(made, [(one.get("requestBody"), one.get("parameters")) for one in operations])
    answered = [one["responses"] for one in operations]
    names = _reached(made, answered) - sent
    for part in _objects_of_any_kind(answered):
        if "properties" in (item := part.get("itemSchema", {})):  # of unnamed events, which readers name so:
            item["properties"].setdefault(
                "event", {"const": "message"}
            )  # https://html.spec.whatwg.org/#dispatchMessage
    for schema in (*answered, *(made["components"]["schemas"][name] for name in names)):
        for part in _objects(schema):
            part.setdefault("additionalProperties", False)
    return made


def _reached(document: dict[str, Any], roots: Any) -> set[str]:
    """Return the names of the schemas that are used there, directly or indirectly."""
    reached: set[str] = set()
    left = list(_references(roots))
    while left:
        if (name := left.pop()) not in reached:
            reached.add(name)
            left += _references(document["components"]["schemas"][name])
    return reached


def _references(value: Any) -> Iterator[str]:
    for part in _objects_of_any_kind(value):
        reference = part.get("$ref")
        if isinstance(reference, str) and reference.startswith(_SCHEMAS):
            yield reference.removeprefix(_SCHEMAS)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield schemas of objects that list their properties."""
    for part in _objects_of_any_kind(value):
        if part.get("type") == "object" and isinstance(part.get("properties"), dict):
            yield part


def _objects_of_any_kind(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for part in value.values():
            yield from _objects_of_any_kind(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _objects_of_any_kind(part)
