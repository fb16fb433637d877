"""Chunking: text to overlapping chunks with offsets and headings."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter

from vectorforge.config import IngestionSettings
from vectorforge.errors import ConfigurationError, InvalidInputError
from vectorforge.extras import not_installed
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.locations import WITH_MARKDOWN_HEADINGS, find_headings
from vectorforge.ingestion.types import SpanKind, TextChunk, TextSpan

_SEGMENT = 50_000
"""Characters per call of the splitter: its time grows with their square (measured: 1.8 million take
1.2 s as plain text and 3.6 s as Markdown, in pieces 0.2 s). No chunk overlaps the end of a piece."""
_BLANKS = re.compile(r"\s{64,}+")
_MOST_BREAKS = 16
"""Line breaks in a row from which on the text is cut there: the splitter's time grows with the square of
their number (measured: 8,192 of them take 1.4 to 3.4 s). Long lines of spaces are not cut."""
_SHORT = 50
"""Characters below which a chunk joins its neighbor, at most an eighth of the size: short chunks match
poorly, and displace relevant ones."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_SENTENCE_START = re.compile(r"[.!?]\s+|\n\s*\n|\n(?=\s*(?:[-*+#]|\d+[.)])\s)")


_Span = tuple[int, int]


class ContextKind(StrEnum):
    """Source of the contexts of chunks."""

    MODEL = "model"
    """A language model."""
    OUTLINE = "outline"
    """The first sentences of document and section."""


@dataclass(frozen=True, slots=True)
class ChunkingConfig:
    """Chunk sizes in characters. The default gave the best retrieval over six collections."""

    chunk_size: int = 800
    """Maximum characters of a chunk."""
    chunk_overlap: int = 150
    """Maximum characters repeated from the previous chunk; 0 to half of ``chunk_size``."""
    context: ContextKind | None = None
    """Kind of the chunks' contexts; None: they have none."""

    def __post_init__(self) -> None:
        if self.chunk_size < 1:
            raise InvalidInputError("chunk_size must be at least 1.", field="chunk_size")
        most = self.chunk_size // 2  # a larger overlap produces any number of chunks
        if not 0 <= self.chunk_overlap <= most:
            raise InvalidInputError(
                f"chunk_overlap must be at least 0 and at most half of chunk_size, {most}.",
                field="chunk_overlap",
            )

    @classmethod
    def from_settings(cls, settings: IngestionSettings) -> "ChunkingConfig":
        """Return the configured sizes."""
        return cls(settings.chunk_size_chars, settings.chunk_overlap_chars)


def chunk_text(
    text: str,
    config: ChunkingConfig | None = None,
    *,
    media_type: str = media.PLAIN,
    spans: Sequence[TextSpan] = (),
) -> list[TextChunk]:
    """Cut a text where its structure allows: sections, paragraphs, sentences, words, in this order.

    Rows of tables are never cut unless they are longer than a chunk; then they are cut between values.

    Args:
        text: Any text.
        config: Sizes; default 800 characters, 150 overlapping.
        media_type: Markdown, HTML and DOCX are cut as Markdown (code fences and tables stay whole where they
            fit) and their chunks know their headings; so is any text with spans.
        spans: Headings and rows of the text, ascending. Without headings among them, those of Markdown.

    Returns:
        Chunks in the order of the text. Together they cover every character that is not white space, and
        none is white space only. Bare headings and chunks under 50 characters are part of a neighbor. A
        chunk of what a sentence leads in to ("In this order:") begins with it, if the overlap allows.

    Raises:
        ConfigurationError: The extra ``ingest`` is not installed.
    """
    try:
        from semantic_text_splitter import MarkdownSplitter, TextSplitter
    except ModuleNotFoundError as exc:
        raise ConfigurationError(not_installed(exc)) from exc

    config = config or ChunkingConfig()
    markdown = media_type in WITH_MARKDOWN_HEADINGS or bool(spans)
    splitter = (MarkdownSplitter if markdown else TextSplitter)(
        config.chunk_size, overlap=config.chunk_overlap
    )
    rows = [span for span in spans if span.kind == SpanKind.ROW and text[span.start : span.end].strip()]
    headings = find_headings(text, media_type, spans)
    readable = _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)  # one for one, for valid UTF-8
    cut: list[_Span] = []
    for region, of_table in _regions(text, rows):
        if of_table:
            cut += _packed(text, of_table, config.chunk_size)
            continue
        cut += [
            (begin + offset, begin + offset + len(chunk))
            for begin, end in _segments(readable, region, headings.starts)
            for offset, chunk in splitter.chunk_indices(readable[begin:end])
            if chunk.strip()
        ]
    joined = _with_lead_ins(
        text, _ShortChunks(text, config.chunk_size, headings.starts, rows).joined(cut), config
    )
    return [
        TextChunk(index, text[start:stop], start, stop, headings.above(start, stop))
        for index, (start, stop) in enumerate(joined)
    ]


def _with_lead_ins(text: str, spans: Sequence[_Span], config: ChunkingConfig) -> list[_Span]:
    """Start chunks at the sentence with a colon before them; leave out one that is then part of the next."""
    done: list[_Span] = []
    for start, end in spans:
        earliest = max(done[-1][0], start - config.chunk_overlap, end - config.chunk_size) if done else start
        before = text[earliest:start].rstrip()
        if before.endswith((":", "：")) and not text[start:end].lstrip().startswith("#"):
            begins = [earliest + match.end() for match in _SENTENCE_START.finditer(before)]
            if earliest == done[-1][0]:
                begins.insert(0, earliest)
            start = begins[-1] if begins else start
        if done and done[-1][0] == start:
            done.pop()
        done.append((start, end))
    return done


def _regions(text: str, rows: Sequence[TextSpan]) -> Iterator[tuple[_Span, list[TextSpan]]]:
    """Yield parts of the text in order: a run of rows, with the rows, or text between, without any."""
    position, run = 0, list[TextSpan]()
    for row in rows:
        if text[position : row.start].strip():
            if run:
                yield (run[0].start, run[-1].end), run
                run = []
            yield (position, row.start), []
        run.append(row)
        position = row.end
    if run:
        yield (run[0].start, run[-1].end), run
    if text[position:].strip():
        yield (position, len(text)), []


def _packed(text: str, rows: Sequence[TextSpan], size: int) -> Iterator[_Span]:
    """Yield chunks of as many whole rows as fit; a longer row is cut between values, else between words."""
    start, end = rows[0].start, rows[0].start
    for row in rows:
        if row.end - start > size and end > start:
            yield start, end
            start = row.start
        end = row.end
        while end - start > size:
            cut = next(
                (
                    place
                    for mark in ("\n", "; ", " ")
                    if (place := text.rfind(mark, start + size // 2, start + size) + 1)
                ),
                start + size,
            )
            if text[start:cut].strip():
                yield start, cut
            start = cut
    if text[start:end].strip():
        yield start, end


class _ShortChunks:
    """Joins short chunks with a neighbor; if that is too long, moves the cut between them.

    Args:
        headings: Offset of each heading, ascending; none of plain text.
        rows: Rows of tables, ascending, which no cut divides.
    """

    def __init__(
        self, text: str, chunk_size: int, headings: Sequence[int], rows: Sequence[TextSpan] = ()
    ) -> None:
        self._text = text
        self._size = chunk_size
        self._headings = headings
        self._heading_starts = frozenset(headings)
        self._rows = rows
        self._short = min(_SHORT, chunk_size // 8)

    def joined(self, spans: Sequence[_Span]) -> list[_Span]:
        """Start and end of the chunks after joining."""
        done: list[_Span] = []
        pending: _Span | None = None
        for position, given in enumerate(spans):
            span, following = given, spans[position + 1][0] if position + 1 < len(spans) else len(self._text)
            if pending is not None:
                *before, span = self._join(pending, span, following)
                done += before
                pending = None
            if self._is_bare_heading(span) or (not done and self._is_short(span)):
                pending = span
            elif self._is_short(span):
                done[-1:] = self._join(done[-1], span, following)
            else:
                done.append(span)
        if pending is not None:
            done[-1:] = self._join(done[-1], pending, len(self._text)) if done else [pending]
        return done

    def _join(self, first: _Span, second: _Span, following: int) -> list[_Span]:
        """Return one chunk, two with a cut near the middle, or the two as they are where no cut helps.

        ``following`` is the start of the chunk after them, which may overlap the second.
        """
        start, end = first[0], second[1]
        if end - start <= self._size:
            return [(start, end)]
        earliest = max(end - self._size, start + self._short)
        latest = min(start + self._size, end - self._short, following)
        if earliest > latest:
            return [first, second]
        latest = max(earliest, min(latest, (start + end) // 2))
        cut = _best_cut(self._text, earliest, latest, self._headings)
        row = bisect_right(self._rows, cut, key=attrgetter("start")) - 1
        if row >= 0 and cut < self._rows[row].end:
            cut = self._rows[row].start
        return [(start, cut), (cut, end)] if cut >= earliest else [first, second]

    def _is_short(self, span: _Span) -> bool:
        return len(self._text[slice(*span)].strip()) < self._short

    def _is_bare_heading(self, span: _Span) -> bool:
        if not self._headings:
            return False
        return all(
            span[0] + line.start() in self._heading_starts
            for line in re.finditer(r"[^\n]+", self._text[slice(*span)])
            if line[0].strip()
        )


def _segments(text: str, region: _Span, headings: Sequence[int]) -> Iterator[_Span]:
    """Start and end of pieces of at most ``_SEGMENT`` characters, cut before headings where possible."""
    for begin, stop in _between_gaps(text, region):
        while stop - begin > _SEGMENT:
            end = _best_cut(text, begin + _SEGMENT // 2, begin + _SEGMENT, headings)
            yield begin, end
            begin = end
        yield begin, stop


def _between_gaps(text: str, region: _Span) -> Iterator[_Span]:
    begin, stop = region
    for blanks in _BLANKS.finditer(text, begin, stop):
        if len(blanks[0]) - blanks[0].count(" ") - blanks[0].count("\t") >= _MOST_BREAKS:
            yield begin, blanks.start()
            begin = blanks.end()
    yield begin, stop


def _best_cut(text: str, earliest: int, latest: int, headings: Sequence[int]) -> int:
    last_heading = bisect_right(headings, latest) - 1
    if last_heading >= 0 and headings[last_heading] >= earliest:
        return headings[last_heading]
    for separator in ("\n\n", "\n", " "):
        place = text.rfind(separator, earliest, latest)
        if place >= 0:
            return place + len(separator)
    return latest
