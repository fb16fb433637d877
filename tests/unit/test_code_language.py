"""Docstrings and comments of the code use the field's words (tests/support/glossary.tsv)."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "tests" / "support" / "glossary.tsv"
FOLDERS = ("shared/vectorforge", "functions", "infra")
FRAGMENT = re.compile(r"(What|Whether|How|Who|Whose|Which|Where|When|Of)\b")


def python_files() -> list[Path]:
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in found if "node_modules" not in path.parts)


@cache
def forbidden() -> re.Pattern[str]:
    words = [line.split("\t")[0] for line in GLOSSARY.read_text(encoding="utf-8").splitlines() if line]
    alternatives = "|".join(sorted(map(re.escape, words), key=len, reverse=True))
    return re.compile(rf"(?<![\w-])(?<!front )(?<!front\n)(?:{alternatives})(?![\w-])", re.IGNORECASE)


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield node.body[0].lineno, text


def comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def prose(text: str) -> str:
    """The text without code, links and quoted output."""
    return re.sub(r"``.*?``|https?://\S+|\"[^\"]*\"", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_and_comments_use_words_of_the_glossary(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    found = [
        f"{line}: {match[0]}"
        for line, text in (*docstrings(ast.parse(source)), *comments(source))
        for match in forbidden().finditer(prose(text))
    ]
    assert found == []


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_docstring_begins_with_a_verb_or_a_noun(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert [
        f"{line}: {text.splitlines()[0]}" for line, text in docstrings(tree) if FRAGMENT.match(text)
    ] == []
