"""The sources of an answer as text below it, for clients that show nothing but text."""

import re
from collections.abc import Iterable, Sequence

from vectorforge.pipeline.types import Citation, SourceCitation

_HEADING = "**Sources**"
_FOOTER = re.compile(rf"\n\n{re.escape(_HEADING)}\n\n(?:- \[\d+\] [^\n]*(?:\n|\Z))+\s*\Z")
_MARKDOWN = re.compile(r"([\\`*_\[\]<>])")
_NO_ADDRESS = str.maketrans({" ": "%20", "(": "%28", ")": "%29", "<": "%3C", ">": "%3E"})


def sources_footer(citations: Iterable[Citation], sources: Sequence[SourceCitation]) -> str:
    """The cited sources as a Markdown list to be put below the answer; empty when none is cited.

    Args:
        citations: Of the answer.
        sources: In the order of their labels.
    """
    numbers = sorted({citation.source_number for citation in citations})
    lines = [f"- [{number}] {_named(sources[number - 1])}" for number in numbers if number <= len(sources)]
    return "\n".join(["", "", _HEADING, "", *lines]) if lines else ""


def without_sources_footer(text: str) -> str:
    """An earlier answer that a client sends back, without such a list: its numbers meant other passages."""
    return _FOOTER.sub("", text)


def _named(source: SourceCitation) -> str:
    title = _plain(source.title or source.document_source)
    if source.source_url:
        return f"[{title}]({_plain_address(source.source_url)})"
    return title if not source.title else f"{title} ({_plain(source.document_source)})"


def _plain(text: str) -> str:
    """One line, in which nothing is Markdown."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def _plain_address(url: str) -> str:
    return "".join(url.split()).translate(_NO_ADDRESS)
