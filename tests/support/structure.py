"""Measure the structure of a checkout: files, lines, function bodies and import cycles.

``python -m tests.support.structure [ROOT]`` prints the rows of docs/results/structure.md.
"""

import ast
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_LINES = 300


@dataclass(frozen=True, slots=True)
class Measures:
    """Figures of one folder's Python files."""

    files: int
    lines: int
    median_lines: int
    p90_lines: int
    small_files: int
    """Files of at most 100 lines."""
    large_files: tuple[str, ...]
    """Files of more than ``MAX_LINES`` lines, relative to the folder."""
    p90_body: int
    """Lines of a function's body, docstring excluded, 90th percentile."""
    circles: tuple[tuple[str, ...], ...]
    """Groups of modules that import each other, type-only imports included."""


def measure(folder: Path, package: str) -> Measures:
    """Measure all Python files below a folder.

    Args:
        folder: Root of the package.
        package: Its dotted name in imports.
    """
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(_python_files(folder))}
    lengths = {path: len(source.splitlines()) for path, source in sources.items()}
    trees = {path: ast.parse(source) for path, source in sources.items()}
    modules = {_module(path, folder, package): tree for path, tree in trees.items()}
    bodies = sorted(body for tree in trees.values() for body in _bodies(tree))
    ordered = sorted(lengths.values())
    return Measures(
        files=len(ordered),
        lines=sum(ordered),
        median_lines=int(statistics.median(ordered)),
        p90_lines=ordered[len(ordered) * 9 // 10],
        small_files=sum(length <= 100 for length in ordered),
        large_files=tuple(str(p.relative_to(folder)) for p, length in lengths.items() if length > MAX_LINES),
        p90_body=bodies[len(bodies) * 9 // 10],
        circles=tuple(_circles({name: _imports(tree, modules) - {name} for name, tree in modules.items()})),
    )


def _python_files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*.py"):
        if not {"node_modules", "__pycache__"} & set(path.parts):
            yield path


def _module(path: Path, folder: Path, package: str) -> str:
    parts = (package, *path.relative_to(folder).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _bodies(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            yield (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def _imports(tree: ast.Module, modules: dict[str, ast.Module]) -> set[str]:
    """Modules imported by a module's own statements, those under TYPE_CHECKING included."""
    found: set[str] = set()
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If):
            waiting += [*node.body, *node.orelse]
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in modules else node.module)
    return found & modules.keys()


def _circles(graph: dict[str, set[str]]) -> list[tuple[str, ...]]:
    """Return the strongly connected components of more than one node (Tarjan, 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    components: list[tuple[str, ...]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph[node]):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                components.append(tuple(sorted(component)))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return components


def main(arguments: Sequence[str]) -> None:
    """Print the figures of the library and of infra."""
    root = Path(arguments[0]) if arguments else Path(__file__).parents[2]
    for name, folder, package in (
        ("library", root / "shared" / "vectorforge", "vectorforge"),
        ("infra", root / "infra", "infra"),
        ("tests", root / "tests", "tests"),
    ):
        found = measure(folder, package)
        sys.stdout.write(
            f"{name}: {found.files} files, {found.lines} lines, median {found.median_lines}, "
            f"p90 {found.p90_lines}, {found.small_files} of at most 100 lines, {len(found.large_files)} of "
            f"more than {MAX_LINES}, body p90 {found.p90_body}, {len(found.circles)} circles "
            f"({sum(map(len, found.circles))} files)\n"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
