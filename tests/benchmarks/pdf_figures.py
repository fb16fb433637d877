"""Quality and cost of reading PDFs that have no known truth: a folder of real documents.

``python -m tests.benchmarks.pdf_figures FOLDER`` compares the text with that of poppler's ``pdftotext``, an
independent reader, and the headings with the document's outline:

- words: share of poppler's words that were read, as often;
- order: share of poppler's pairs of successive words that are successive here, too;
- headings: share of the outline's titles that are headings of the text.

"before" is pdfium's plain text, which has no headings: what a reader without layout returns. Running heads
and page numbers are left out on purpose, so that less than all of poppler's words are read.
"""

import argparse
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pypdfium2

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract import extract
from vectorforge.ingestion.types import ExtractedDocument, SpanKind

_TITLE_NUMBER = re.compile(
    r"(?:(?:chapter|appendix|part|section|kapitel|anhang)\s+)?(?:\d+|[A-Z]|[IVXLC]+)(?:\.\d+)*[.:)]?\s+",
    re.IGNORECASE,
)
_COLUMNS = ("words before", "words", "order before", "order", "headings", "CPU ms before", "CPU ms a page")


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one PDF."""

    name: str
    pages: int
    values: tuple[float, ...]
    """In the order of ``_COLUMNS``; NaN for headings without an outline."""
    headings: str
    """Number of headings read, and of titles in the outline."""


def figures_of(path: Path) -> Figures:
    """Read a PDF in both ways.

    Raises:
        ExtractionError: It cannot be read.
    """
    content = path.read_bytes()
    expected = _words(_poppler(path))
    begun = _cpu_s()
    plain = _plain(content)
    between = _cpu_s()
    [document] = extract(content, source=path.name)
    ended = _cpu_s()
    with pypdfium2.PdfDocument(content) as pdf:
        pages = len(pdf)
        titles = [keys for item in pdf.get_toc() if (keys := _keys(item.get_title()))]
    headings = _headings(document)
    found = {key for text in headings for key in _keys(text)}
    words_before, order_before = _shares(_words(plain), expected)
    words, order = _shares(_words(document.text), expected)
    found_titles = (
        sum(not keys.isdisjoint(found) for keys in titles) / len(titles) if titles else float("nan")
    )
    before_ms, now_ms = (1_000 * seconds / pages for seconds in (between - begun, ended - between))
    values = (words_before, words, order_before, order, found_titles, before_ms, now_ms)
    return Figures(path.stem, pages, values, f"{len(headings)}/{len(titles)}")


def _poppler(path: Path) -> str:
    done = subprocess.run(["pdftotext", "-enc", "UTF-8", path, "-"], capture_output=True, check=True)
    return done.stdout.decode()


def _plain(content: bytes) -> str:
    with pypdfium2.PdfDocument(content) as pdf:
        return "\n".join(page.get_textpage().get_text_bounded() for page in pdf)


def _cpu_s() -> float:
    """Return the CPU seconds of this process and its ended children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _words(text: str) -> list[str]:
    """Return words in lower case, those with a hyphen at the end of a line as one."""
    joined = re.sub(r"[-\u00ad\u2010\ufffe]\s*\n\s*", "", text)
    return re.findall(r"\w+", joined.lower())


def _shares(words: Sequence[str], expected: Sequence[str]) -> tuple[float, float]:
    return _share(words, expected), _share(pairwise(words), pairwise(expected))


def _share(found: Iterable[object], expected: Iterable[object]) -> float:
    wanted = Counter(expected)
    return (wanted & Counter(found)).total() / max(wanted.total(), 1)


def _headings(document: ExtractedDocument) -> list[str]:
    return [document.text[span.start : span.end] for span in document.spans if span.kind == SpanKind.HEADING]


def _keys(title: str) -> set[str]:
    """Return the letters and digits of a heading, with and without its number."""
    plain = " ".join(title.strip("# ").split())
    texts = (plain, _TITLE_NUMBER.sub("", plain, count=1))
    return {"".join(re.findall(r"[^\W_]+", text.lower())) for text in texts} - {""}


def report(figures: Sequence[Figures]) -> str:
    """Return the figures as a Markdown table; the last row has the means by page."""
    pages = sum(one.pages for one in figures)
    means = []
    for column in range(len(_COLUMNS)):
        known = [(one.values[column], one.pages) for one in figures if one.values[column] >= 0]
        means.append(sum(value * weight for value, weight in known) / max(sum(w for _, w in known), 1))
    rows = [*figures, Figures(f"all {len(figures)}, by page", pages, tuple(means), "")]
    lines = [f"| document | pages | {' | '.join(_COLUMNS)} | read/outline |", "|---|" + "---:|" * 9]
    for one in rows:
        shares, times = one.values[:5], one.values[5:]
        shown = [f"{value:.3f}" if value >= 0 else "-" for value in shares] + [f"{ms:.1f}" for ms in times]
        lines.append(f"| {one.name} | {one.pages} | {' | '.join(shown)} | {one.headings} |")
    return "\n".join(lines)


def main() -> None:
    """Measure every PDF of a folder."""
    parser = argparse.ArgumentParser(description="Measure the reading of real PDFs.")
    parser.add_argument("folder", type=Path, help="folder with the PDFs, which are not part of this project")
    figures = []
    for path in sorted(parser.parse_args().folder.glob("*.pdf")):
        try:
            figures.append(figures_of(path))
        except ExtractionError as exc:
            print(f"{path.name}: {exc.message}", file=sys.stderr)
    print(report(figures))


if __name__ == "__main__":
    main()
