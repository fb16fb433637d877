"""Reachable imports of modules, read from the source: top-level, in functions, or by name."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

OURS = ("vectorforge", "functions")


@dataclass
class Reachable:
    """The transitive imports of some modules."""

    modules: set[str] = field(default_factory=set)
    missing_modules: set[str] = field(default_factory=set)
    """Imported modules of ours that are missing from the folder."""
    packages: set[str] = field(default_factory=set)
    """Top-level names of third-party packages."""


@cache
def reachable_imports(folder: Path, *roots: str) -> Reachable:
    """Follow every import from these modules; imports for type checkers do not count."""
    found = Reachable()
    waiting = list(roots)
    while waiting:
        module = waiting.pop()
        if module in found.modules:
            continue
        file = _file(folder, module)
        if file is None:
            found.missing_modules.add(module)
            continue
        found.modules.add(module)
        if "." in module:
            waiting.append(module.rpartition(".")[0])
        for name in _imports(folder, ast.parse(file.read_text())):
            top = name.partition(".")[0]
            if top in OURS:
                waiting.append(name)
            elif top not in sys.stdlib_module_names:
                found.packages.add(top)
    return found


def _file(folder: Path, module: str) -> Path | None:
    place = folder.joinpath(*module.split("."))
    candidates = (place / "__init__.py", place.with_suffix(".py"))
    return next((file for file in candidates if file.is_file()), None)


def _imports(folder: Path, tree: ast.AST) -> Iterator[str]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _imported_from(folder, node)
        elif isinstance(node, ast.Constant):
            yield from _module_named(folder, node.value)
        else:
            waiting.extend(ast.iter_child_nodes(node))


def _imported_from(folder: Path, node: ast.ImportFrom) -> Iterator[str]:
    """Return the module, and those of the names that are modules themselves."""
    if node.module and not node.level:
        yield node.module
        members = (f"{node.module}.{alias.name}" for alias in node.names)
        if node.module.startswith(OURS):
            yield from (member for member in members if _file(folder, member))


def _module_named(folder: Path, value: object) -> Iterator[str]:
    """Return a module of ours that is started or imported by its name, or by "module:name"."""
    if isinstance(value, str) and value.startswith("vectorforge."):
        module = value.partition(":")[0]
        if _file(folder, module):
            yield module
