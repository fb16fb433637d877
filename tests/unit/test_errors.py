"""Properties of errors that alarms rely on, and their catalog."""

import importlib
import pkgutil
import re

import pytest

from vectorforge import errors
from vectorforge.api.problems import STATUS_OF
from vectorforge.errors import VectorForgeError

CLASSES = [
    cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, VectorForgeError)
]


@pytest.mark.parametrize("cls", CLASSES)
def test_is_fault_matches_status_of_error_class(cls: type[VectorForgeError]) -> None:
    status = next(STATUS_OF[base] for base in cls.__mro__ if base in STATUS_OF)
    # Other 429s are caused by a vendor's limits, not by the caller.
    limited_by_us = issubclass(cls, errors.LimitExceededError)
    assert cls.is_fault == (status >= 500 or (status == 429 and not limited_by_us))


def test_error_catalog_lists_every_class_under_its_base() -> None:
    assert errors.__doc__ is not None
    bases: list[str] = []
    listed: dict[str, str | None] = {}
    for indent, name in re.findall(r"^    ([│├└─ ]*)(\w+Error)\b", errors.__doc__, re.MULTILINE):
        depth = len(indent) // 4
        listed[name] = bases[depth - 1] if depth else None
        bases[depth:] = [name]
    of_modules = {
        name: cls
        for module in pkgutil.iter_modules(errors.__path__, "vectorforge.errors.")
        for name, cls in vars(importlib.import_module(module.name)).items()
        if isinstance(cls, type) and issubclass(cls, VectorForgeError)
    }
    exported = {cls.__name__ for cls in CLASSES}
    assert exported == set(of_modules) == set(listed)
    assert {name: base for name, base in listed.items() if base} == {
        cls.__name__: cls.__base__.__name__ for cls in CLASSES if cls is not VectorForgeError and cls.__base__
    }
