"""Labels and sources of answers in the form that clients of other APIs expect.

Each preset has its own labels: ``[Source 1, 3]``, ``[Context 2]``, ``Source: https://... - A``. All become
``[n]`` while the answer streams: ``[Source 1, 3]`` becomes ``[1][3]``, and a source named by its address is
followed by ``[n]``. Code stays unchanged.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from vectorforge.api.answers import link_to, title_of
from vectorforge.pipeline.citations.labels import Label, SourceLabels, find_labels
from vectorforge.pipeline.types import Citation, SourceCitation, cited_locations
from vectorforge.types import Location, RetrievedChunk

_HEADING = "**Sources**"
_FOOTER = re.compile(rf"\n\n{re.escape(_HEADING)}\n\n(?:- \[\d+\] [^\n]*(?:\n|\Z))+\s*\Z")
_MARKDOWN = re.compile(r"([\\`*_\[\]<>])")
_NO_ADDRESS = str.maketrans({" ": "%20", "(": "%28", ")": "%29", "<": "%3C", ">": "%3E"})


def sources_footer(citations: Iterable[Citation], sources: Sequence[SourceCitation]) -> str:
    """Return the cited sources, of those by label, as a Markdown list to append; empty if none is cited."""
    cited = list(citations)
    numbers = {citation.source_number for citation in cited}
    lines = [
        f"- [{number}] {_named(source, cited_locations(number, source.locations, cited))}"
        for number, source in enumerate(sources, start=1)
        if number in numbers
    ]
    return "\n".join(["", "", _HEADING, "", *lines]) if lines else ""


def without_sources_footer(text: str) -> str:
    """Remove such a list from an earlier answer that a client sends back; its numbers are outdated."""
    return _FOOTER.sub("", text)


def _named(source: SourceCitation, locations: Sequence[Location]) -> str:
    title = _plain(title_of(source, locations))
    if url := link_to(source, locations):
        return f"[{title}]({''.join(url.split()).translate(_NO_ADDRESS)})"
    return title if not source.title else f"{title} ({_plain(source.document_source)})"


def _plain(text: str) -> str:
    """Return the text on one line with Markdown escaped."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


_FENCE = re.compile(r"[ \t]{0,100}```")
_FENCE_BEGUN = re.compile(r"[ \t]{0,100}`{0,2}\Z")
_LONGEST_CODE = 500
"""Characters; a backtick closed later than this starts no code."""
_LONGEST_LABEL = 200
_WORDS = ("source", "sources", "context")
_LABEL_BEGUN = re.compile(
    r"\[(?:(?P<word>[a-z]{0,7})|(?:sources?|context)\s+[\w\s,;&]*|\d[\d\s,]*\]?)\Z", re.IGNORECASE
)
"""An incomplete label, or a link if a parenthesis follows."""
_SOURCE_BEGUN = re.compile(r"\b(?:source:|s(?:o(?:u(?:r(?:ce?)?)?)?)?\Z)", re.IGNORECASE)
_SPACES_IN_SOURCE = 16
"""Characters of a label by source in addition to the source and its title."""


class LabelRewriter:
    """Rewrites the labels of one answer piece by piece, and maps their positions.

    A piece may end within a label; text that may become a label is held back.

    Args:
        chunks: Chunks in the prompt in the order of their labels; for labels by source.
        keeps_labels: False removes the labels and the blanks before them instead; a source named by its
            address stays.
    """

    def __init__(self, chunks: Sequence[RetrievedChunk] = (), *, keeps_labels: bool = True) -> None:
        self._keeps_labels = keeps_labels
        self._source_labels = SourceLabels(chunks)
        self._longest_source = max((_label_chars(chunk) for chunk in chunks), default=0)
        self._answer = ""
        self._done = 0
        """Offset in the answer up to which it is emitted."""
        self._scan_from = 0
        """Offset in the current line after which no code is open."""
        self._at_line_start = True
        self._is_code_line = False
        self._in_fence = False
        self._written = 0
        """Emitted characters."""
        self._ranges: dict[tuple[int, int], tuple[int, int]] = {}
        self.removed_at: list[int] = []
        """Offset in the emitted text of each number that was removed, in order."""
        self._shifted_from: list[int] = [0]
        self._shifts: list[int] = [0]

    def feed(self, text: str) -> str:
        """Return the text that is final after the next piece of the answer; may be empty."""
        self._answer += text
        return self._advance(is_whole=False)

    def finish(self) -> str:
        """Return the remaining text at the end of the answer."""
        return self._advance(is_whole=True)

    def continue_with(self, chunks: Sequence[RetrievedChunk]) -> str:
        """Return the remaining text before a next search; what follows may name these chunks."""
        rest = self.finish()
        self._source_labels = SourceLabels(chunks)
        self._longest_source = max((_label_chars(chunk) for chunk in chunks), default=0)
        return rest

    def has_emitted(self, citation: Citation) -> bool:
        """Return True if the citation's label has been emitted and can be located."""
        return citation.end <= self._done

    def locate(self, citation: Citation) -> Citation:
        """Return the citation with the offsets of its ``[n]`` in the emitted text, in code points.

        Call it after the label is emitted; after ``finish`` all are.
        """
        if new := self._ranges.get((citation.start, citation.source_number)):
            return replace(citation, start=new[0], end=new[1])
        shift = self._shifts[bisect_right(self._shifted_from, citation.start) - 1]
        return replace(citation, start=citation.start + shift, end=citation.end + shift)

    def _advance(self, *, is_whole: bool) -> str:
        parts: list[str] = []
        while self._done < len(self._answer):
            line_break = self._answer.find("\n", self._done)
            is_line_whole = is_whole or line_break >= 0
            end = line_break + 1 if line_break >= 0 else len(self._answer)
            if self._at_line_start and not self._read_line_start(end, is_line_whole=is_line_whole):
                break
            if self._is_code_line:
                parts.append(self._emit(end))
            else:
                parts += self._rewrite_line(end, is_line_whole=is_line_whole)
            if line_break < 0:
                break
            self._at_line_start = True
        return "".join(parts)

    def _read_line_start(self, end: int, *, is_line_whole: bool) -> bool:
        """Return True once it is known whether the line is code, by the rule of ``is_fence``."""
        if not is_line_whole and _FENCE_BEGUN.match(self._answer, self._done, end):
            return False
        is_fence = _FENCE.match(self._answer, self._done, end) is not None
        self._is_code_line = is_fence or self._in_fence
        self._in_fence ^= is_fence
        self._at_line_start = False
        self._scan_from = self._done
        return True

    def _rewrite_line(self, end: int, *, is_line_whole: bool) -> list[str]:
        """Return the final parts of a line of text, which may be incomplete."""
        held_from = end if is_line_whole else self._held_from(end)
        scan = self._scan(end, is_line_whole=is_line_whole)
        sources = self._source_labels.find(self._answer, self._done, end)
        parts: list[str] = []
        for label in sorted([*scan.labels, *sources], key=lambda label: label.start):
            if label.start < self._done:
                continue  # emitted, or a part of the previous label
            if label.end > held_from or label.start > scan.open_code:
                held_from = min(held_from, label.start)  # no label if the open code is closed
                break
            parts += self._write_label(label)
        held_from = max(held_from, self._done)
        if not self._keeps_labels and not (is_line_whole and held_from == end):
            held_from = self._done + len(self._answer[self._done : held_from].rstrip(" "))
        parts.append(self._emit(held_from))
        self._scan_from = scan.restart(self._done)
        return parts

    def _scan(self, end: int, *, is_line_whole: bool) -> "_Scan":
        """Find the labels in brackets, but not those in code."""
        scan = _Scan([self._scan_from], end)
        while (backtick := self._answer.find("`", scan.starts[-1], end)) >= 0:
            scan.labels += self._bracketed(scan.starts[-1], backtick)
            longest = backtick + _LONGEST_CODE
            closing = self._answer.find("`", backtick + 1, min(end, longest))
            if closing < 0 and end < longest and not is_line_whole:
                scan.labels += self._bracketed(backtick, end)
                scan.open_code = backtick
                return scan
            scan.starts.append((backtick if closing < 0 else closing) + 1)
        scan.labels += self._bracketed(scan.starts[-1], end)
        return scan

    def _bracketed(self, start: int, end: int) -> Iterator[Label]:
        for label in find_labels(self._answer, start, end):
            if label.end - label.start <= _LONGEST_LABEL:
                yield label

    def _write_label(self, label: Label) -> Iterable[str]:
        if not self._keeps_labels:
            yield self._remove_label(label)
            return
        yield self._emit(label.start)
        if self._answer[label.start] == "[":
            self._done = label.end
        else:  # keep a source's address, which is more useful than a number
            yield self._emit(label.end)
            self._written += 1
            yield " "
        for number in label.numbers:
            text = f"[{number}]"
            self._ranges[label.start, number] = (self._written, self._written + len(text))
            self._written += len(text)
            yield text
        self._shifted_from.append(label.end)
        self._shifts.append(self._written - self._done)

    def _remove_label(self, label: Label) -> str:
        """Return the text before a label; its numbers are located at the end of that text."""
        is_bracketed = self._answer[label.start] == "["
        text = self._answer[self._done : label.start].rstrip(" ") if is_bracketed else self._emit(label.end)
        if is_bracketed:
            self._written += len(text)
            self._done = label.end
        self.removed_at += [self._written] * len(label.numbers)
        self._ranges.update({(label.start, n): (self._written, self._written) for n in label.numbers})
        self._shifted_from.append(label.end)
        self._shifts.append(self._written - self._done)
        return text

    def _emit(self, end: int) -> str:
        text = self._answer[self._done : end]
        self._done = end
        self._written += len(text)
        return text

    def _held_from(self, end: int) -> int:
        """Return the start of text that may become a label; ``end`` if there is none."""
        held_from = end
        bracket = self._answer.rfind("[", max(self._done, end - _LONGEST_LABEL), end)
        begun = _LABEL_BEGUN.match(self._answer, bracket, end) if bracket >= 0 else None
        if begun and (not begun["word"] or any(word.startswith(begun["word"].lower()) for word in _WORDS)):
            held_from = bracket
        if self._longest_source:
            for match in _SOURCE_BEGUN.finditer(self._answer, self._done, held_from):
                if end - match.start() < self._longest_source:
                    return match.start()
        return held_from


@dataclass(slots=True)
class _Scan:
    """The end of an answer, looked through for labels and code."""

    starts: list[int]
    """Start of its parts without code."""
    open_code: int
    """Offset of a backtick that a later one may close; the end of the answer if there is none."""
    labels: list[Label] = field(default_factory=list)

    def restart(self, done: int) -> int:
        """Return the start of the next scan, outside of code, after emission up to ``done``."""
        last = max((start for start in self.starts if start <= done), default=self.starts[0])
        return done if last == self.starts[-1] and done <= self.open_code else last


def rewrite_labels(
    answer: str, citations: Iterable[Citation], chunks: Sequence[RetrievedChunk] = ()
) -> tuple[str, list[Citation]]:
    """Return a whole answer with labels ``[n]`` and its citations with offsets in that text."""
    rewriter = LabelRewriter(chunks)
    text = rewriter.feed(answer) + rewriter.finish()
    return text, [rewriter.locate(citation) for citation in citations]


def _label_chars(chunk: RetrievedChunk) -> int:
    return len(chunk.document_source) + len(chunk.document_title or "") + _SPACES_IN_SOURCE
