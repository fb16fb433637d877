"""Docstrings, comments and names use the field's words (tests/support/glossary.tsv)."""

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "tests" / "support" / "glossary.tsv"
FOLDERS = ("shared/vectorforge", "functions", "infra", "tests", "examples")
_FRAGMENTS = r"(What|Whether|How|Who|Whose|Which|Where|When|Of)\b"
FRAGMENT = re.compile(_FRAGMENTS)
STRING_WITH_FRAGMENT = re.compile(rf"[\"']\s*{_FRAGMENTS}")

WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
DIALECT = frozenset(
    (
        *("anew", "anybody", "asked", "asking", "beside", "everybody", "keeping", "nobody", "riding", "said"),
        *("somebody", "spoken", "tells", "told", "unsaid", "whoever"),
    )
)
"""Words that no name in the library has."""
ANY_DIALECT = re.compile("|".join(DIALECT), re.IGNORECASE)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def python_files() -> list[Path]:
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in paths if "node_modules" not in path.parts)


@cache
def python_files_by_folder() -> dict[Path, list[Path]]:
    folders: dict[Path, list[Path]] = {}
    for path in python_files():
        folders.setdefault(path.parent, []).append(path)
    return folders


@cache
def forbidden() -> re.Pattern[str]:
    words = [line.split("\t")[0] for line in GLOSSARY.read_text(encoding="utf-8").splitlines() if line]
    alternatives = "|".join(sorted(map(re.escape, words), key=len, reverse=True))
    return re.compile(rf"(?<![\w-])(?<!front )(?<!front\n)(?:{alternatives})(?![\w-])", re.IGNORECASE)


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of the docstrings of modules, classes, functions, constants and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                match statement:
                    case ast.Expr(value=ast.Constant(value=str(text))):
                        yield statement.lineno, inspect.cleandoc(text)


def comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def prose(text: str) -> str:
    """The text without code, links and quoted output."""
    return re.sub(r"``.*?``|https?://\S+|\"[^\"]*\"", "", text, flags=re.DOTALL)


def findings(source: str) -> Iterator[str]:
    """Yield words outside the glossary, first words of fragments, and each one's line."""
    # Parsing all sources takes ten times as long as searching them.
    fragments, words = STRING_WITH_FRAGMENT.search(source), forbidden().search(source)
    if not fragments and not words:
        return
    tree = ast.parse(source)
    for line, text in docstrings(tree):
        if FRAGMENT.match(text):
            yield f"{line}: {text.splitlines()[0]}"
    if words:  # in code, perhaps: tokens are slow to read
        for line, text in (*docstrings(tree), *comments(source)):
            yield from (f"{line}: {match[0]}" for match in forbidden().finditer(prose(text)))


def dialect_names(source: str) -> Iterator[str]:
    """Yield defined names with a word of ``DIALECT``, and each one's line."""
    if not ANY_DIALECT.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                pass
            case ast.arg(arg=name):
                pass
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                pass
            case _:
                continue
        if not DIALECT.isdisjoint(word.lower() for word in WORD.findall(name)):
            yield f"{node.lineno}: {name}"


@pytest.mark.parametrize("folder", sorted(python_files_by_folder()), ids=relative)
def test_docstrings_and_comments_use_words_of_the_glossary(folder: Path) -> None:
    assert [
        f"{relative(path)}:{found}"
        for path in python_files_by_folder()[folder]
        for found in findings(path.read_text(encoding="utf-8"))
    ] == []


def test_library_names_use_words_of_the_field() -> None:
    library = [path for path in python_files() if relative(path).startswith(("shared/", "functions/"))]
    assert [
        f"{relative(path)}:{found}"
        for path in library
        for found in dialect_names(path.read_text(encoding="utf-8"))
    ] == []


def test_fragments_words_and_names_are_found() -> None:
    source = '"""What it does."""\nasked = 1  # anew\nclass Kept:\n    """Of one."""\n'
    assert list(findings(source)) == ["1: What it does.", "4: Of one.", "2: anew"]
    assert list(dialect_names(source)) == ["2: asked"]
