"""References to dropped resources by ``Ref`` and ``Fn::GetAtt``, replaced by values.

A value with a port replaces host and port ("<endpoint>:5432"), since production's port is a part of the text
around the reference.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

PLACEHOLDER = "dropped:"
"""Prefix of a reference without a value."""

_POSTGRES_PORT = ":5432"


@dataclass(slots=True)
class References:
    """References of one stack.

    https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/intrinsic-function-reference.html
    """

    values: Mapping[str, str]
    """Values by "<type>.<attribute>", or "<type>" for a Ref."""
    parameters: dict[str, str] = field(default_factory=dict)
    """Values of the stack's own parameters by logical id."""
    dropped: dict[str, str] = field(default_factory=dict)
    """Types of dropped resources by logical id."""

    def resolved(self, value: Any) -> Any:
        """Replace every reference to a dropped resource."""
        if isinstance(value, list):
            return [self.resolved(inner) for inner in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((name, argument),) = value.items()
            reference = self._reference(name, argument)
            if reference is not None:
                return reference
        resolved = {name: self.resolved(inner) for name, inner in value.items()}
        return self._folded(resolved) if len(resolved) == 1 else resolved

    def _reference(self, name: str, argument: Any) -> Any:
        """Return the value of an intrinsic function that refers to a dropped resource, or None."""
        if name == "Ref" and argument in self.parameters:
            return self.parameters[argument]
        if name == "Ref" and argument in self.dropped:
            return self._value(argument, None)
        if name == "Fn::GetAtt":
            logical_id, attribute = argument
            return self._value(logical_id, attribute) if logical_id in self.dropped else None
        return None

    def _value(self, logical_id: str, attribute: str | None) -> str:
        resource_type = self.dropped[logical_id]
        name = resource_type if attribute is None else f"{resource_type}.{attribute}"
        return self.values.get(name, f"{PLACEHOLDER}{name}")

    def _folded(self, call: dict[str, Any]) -> Any:
        """Fold a Join of texts into a text, and any other function of a placeholder into the placeholder."""
        ((name, argument),) = call.items()
        if name == "Fn::Join" and argument[0] == "" and isinstance(argument[1], list):
            parts = [self._with_port(part) for part in _merged(argument[1])]
            return parts[0] if len(parts) == 1 and isinstance(parts[0], str) else {name: ["", parts]}
        if name.startswith("Fn::") and isinstance(argument, list):
            found = [text for text in argument if isinstance(text, str) and text.startswith(PLACEHOLDER)]
            return found[0] if found else call
        return call

    def _with_port(self, part: Any) -> Any:
        for value in self.values.values():
            if isinstance(part, str) and re.search(r":\d+$", value):
                part = part.replace(f"{value}{_POSTGRES_PORT}", value)
        return part


def texts(value: Any) -> Iterator[str]:
    """Yield every text in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts(inner)


def _merged(parts: list[Any]) -> list[Any]:
    """Join adjacent texts."""
    merged: list[Any] = []
    for part in parts:
        if merged and isinstance(part, str) and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return merged
