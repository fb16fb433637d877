"""Check of settings against the types and ranges of their fields."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import Any, get_type_hints

from pydantic import AfterValidator, TypeAdapter, ValidationError


def written_as(pattern: str, what: str) -> AfterValidator:
    """Return the check of a text field that it has this form, which the error calls ``what``."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"It should be {what}")
        return value

    return AfterValidator(check)


def field_problems(settings: Any, path: str = "") -> Iterator[str]:
    """Yield values outside of their field's type, which Python accepts: "acme" as tenants a, c, m and e."""
    for name, adapter in _adapters(settings.__class__).items():
        value = getattr(settings, name)
        if is_dataclass(value):
            yield from field_problems(value, f"{path}{name}.")
        try:
            adapter.validate_python(dict(value) if isinstance(value, Mapping) else value, strict=True)
        except ValidationError as exc:
            error = exc.errors()[0]
            within = (str(part) for part in error["loc"] if part != "[key]")
            field = ".".join((f"{path}{name}", *within))
            must = re.sub("^.* should", "must", error["msg"]).replace("greater than or equal to", "at least")
            yield f"{field} {must.replace('less than or equal to', 'at most')}, not {error['input']!r}."


@cache
def _adapters(kind: type) -> dict[str, TypeAdapter[Any]]:
    return {name: TypeAdapter(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}
