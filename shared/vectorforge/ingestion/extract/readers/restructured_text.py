"""reStructuredText: docutils converts it to HTML, which the reader of HTML reads."""

import html
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from docutils import ApplicationError, nodes
from docutils.core import publish_parts
from docutils.parsers.rst import Directive, Parser, directives, roles, states
from docutils.transforms import Transform
from docutils.utils import unescape

from vectorforge.ingestion.extract.blocks import Reading, paragraph
from vectorforge.ingestion.extract.decode import decode
from vectorforge.ingestion.extract.readers.html import chapter_blocks

_MAX_CHARS: Final = 1_000_000
"""0.9 million took 16 to 24 s on a slow core."""
_SETTINGS: Final = {
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "_disable_config": True,
    "report_level": 5,
    "halt_level": 5,
    "syntax_highlight": "none",
    "smart_quotes": False,
    "toc_backlinks": False,
    "sectnum_xform": False,
    "math_output": "latex",
    "warning_stream": False,
    "output_encoding": "unicode",
    "line_length_limit": _MAX_CHARS,
}
_NAMES: Final = re.compile(
    r":([a-z][\w+.-]*(?::[a-z][\w+.-]*)?):`|^[ \t]*\.\. ([a-z][\w:+.-]*)::", re.MULTILINE | re.IGNORECASE
)
"""A role, or a directive."""
_TAG: Final = re.compile("<[^<>]*>")
_TARGET: Final = re.compile(r"\s*<[^<>]*>\Z")
_CODE: Final = frozenset({"code", "code-block", "doctest", "literalinclude", "sourcecode", "testcode"})
_WITHOUT_TEXT: Final = frozenset({
    "codeauthor", "contents", "cssclass", "currentmodule", "default-domain", "default-role", "highlight",
    "image", "include", "index", "meta", "module", "raw", "role", "sectionauthor", "tabularcolumns",
    "toctree",
})  # fmt: skip
"""Directives whose arguments and contents are names, files or settings."""
_VERSIONS: Final = {
    "versionadded": "Added in version",
    "versionchanged": "Changed in version",
    "deprecated": "Deprecated since version",
}
"""Directives whose names carry meaning, and what Sphinx writes for them."""
_OF_DOCUTILS: Final = frozenset({
    "admonition", "attention", "caution", "compound", "container", "csv-table", "danger", "date", "epigraph",
    "error", "figure", "highlights", "hint", "important", "list-table", "math", "note", "parsed-literal",
    "pull-quote", "replace", "rubric", "sidebar", "table", "tip", "topic", "unicode", "warning",
})  # fmt: skip
"""Directives that docutils reads."""
_ROLES_OF_DOCUTILS: Final = frozenset({
    "abbreviation", "acronym", "code", "emphasis", "literal", "math", "pep", "rfc", "strong", "sub",
    "subscript", "sup", "superscript", "t", "title", "title-reference",
})  # fmt: skip


def read_rst(content: bytes, *, charset: str | None = None) -> Reading:
    """Read a document, also one for Sphinx, whose other roles and directives keep their text.

    Files that a document includes are not read; comments and tables of contents are left out. Text that
    docutils cannot read, such as deeply nested lists, stays as it is, as do more than a million characters.

    Raises:
        ExtractionError: ``undecodable``.
    """
    text, warnings = decode(content, charset)
    converted = _converted(text) if len(text) <= _MAX_CHARS else None
    if converted is None:
        unread = "The markup of the reStructuredText could not be read; the text is stored with it."
        return Reading(map(paragraph, text.split("\n\n")), None, [*warnings, unread])
    page, title = converted
    return Reading(chapter_blocks(page), title, warnings)


def _converted(text: str) -> tuple[bytes, str] | None:
    """Return the page and its title; None if docutils fails."""
    for role, directive in _NAMES.findall(text):
        if role and role.lower() not in _ROLES_OF_DOCUTILS:
            roles.register_local_role(role.lower(), _as_text)
        elif directive and directive.lower() not in _OF_DOCUTILS:
            directives.register_directive(directive.lower(), _Contents)
    try:
        parts = publish_parts(text, parser=_Parser(), writer="html5", settings_overrides=_SETTINGS)
    except (ApplicationError, RecursionError, ValueError):
        return None
    return str(parts["whole"]).encode(), html.unescape(_TAG.sub("", str(parts["title"])))


class _UnreadText(Transform):
    """Puts what docutils could not read, such as a malformed table, in the place of its error."""

    default_priority = 869  # before the errors are removed: docutils.transforms.universal.FilterMessages

    def apply(self) -> None:
        """Change the document."""
        for message in list(self.document.findall(nodes.system_message)):
            message.parent.replace(message, list(message.findall(nodes.literal_block)))


class _Parser(Parser):
    def get_transforms(self) -> list[type[Transform]]:
        return [*super().get_transforms(), _UnreadText]


def _as_text(
    name: str,
    rawtext: str,
    text: str,
    lineno: int,
    inliner: states.Inliner,
    options: Mapping[str, Any] = MappingProxyType({}),
    content: Sequence[str] = (),
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the shown text of a role of Sphinx: "title <target>", "!name" and "~module.name"."""
    shown = _TARGET.sub("", unescape(text)).removeprefix("!")
    shown = shown.rpartition(".")[2] if shown.startswith("~") else shown
    return [nodes.inline(rawtext, shown)], []


class _AnyOption(dict[str, Any]):
    """Options of any name."""

    def __missing__(self, name: str) -> Any:
        return directives.unchanged

    def __bool__(self) -> bool:
        return True


class _Contents(Directive):
    """A directive that docutils does not know: code, nothing, or its arguments and contents."""

    optional_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = _AnyOption()

    def run(self) -> list[nodes.Node]:
        """Return the nodes in its place."""
        if self.name in _WITHOUT_TEXT or self.name.startswith("auto"):
            return []
        if self.name in _CODE:
            code = "\n".join(self.content)
            return [nodes.literal_block(code, code)] if code else []
        found: list[nodes.Node] = []
        if self.arguments:
            text = f"{_VERSIONS.get(self.name, '')} {self.arguments[0]}".lstrip()
            inline, _ = self.state.inline_text(text, self.lineno)
            found.append(nodes.paragraph(text, "", *inline))
        holder = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, holder)
        return [*found, *holder.children]
