"""PDFs with columns, tables, running heads, footnotes and hyphens, by reportlab."""

import io
from collections.abc import Sequence
from typing import Any

from reportlab.lib import colors
from reportlab.lib.enums import TA_JUSTIFY
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle, getSampleStyleSheet
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BaseDocTemplate,
    Frame,
    KeepTogether,
    ListFlowable,
    PageBreak,
    PageTemplate,
    Paragraph,
    Spacer,
    Table,
)

from tests.support.formats.truth import Fact, Made, Writer

_STYLES = getSampleStyleSheet()
_JUSTIFIED = ParagraphStyle("justified", _STYLES["BodyText"], alignment=TA_JUSTIFY)
_FOOTNOTE = ParagraphStyle("footnote", _STYLES["BodyText"], fontSize=7, leading=9)
_GRID = [("GRID", (0, 0), (-1, -1), 0.5, colors.black), ("FONTNAME", (0, 0), (-1, 0), "Helvetica-Bold")]
_PLAIN = [("FONTNAME", (0, 0), (-1, 0), "Helvetica-Bold"), ("ALIGN", (1, 0), (-1, -1), "RIGHT")]
HEAD = "Quarterly digest of the northern stations"


class _Template(BaseDocTemplate):  # type: ignore[misc]
    def __init__(self, out: io.BytesIO, columns: int) -> None:
        super().__init__(out, pagesize=A4)
        width, height = A4
        gap, margin = 18, 56
        each = (width - 2 * margin - gap * (columns - 1)) / columns
        frames = [
            Frame(margin + at * (each + gap), 64, each, height - 128, leftPadding=0, rightPadding=0)
            for at in range(columns)
        ]
        self.addPageTemplates(PageTemplate(frames=frames, onPage=self._furniture))

    def afterFlowable(self, flowable: Any) -> None:  # noqa: N802 - reportlab calls it after drawing
        """Fill in the pages of facts."""
        for place in getattr(flowable, "places", ()):
            place["page"] = self.page

    @staticmethod
    def _furniture(canvas: Any, document: Any) -> None:
        canvas.setFont("Helvetica", 8)
        canvas.drawString(56, A4[1] - 40, HEAD)
        canvas.drawRightString(A4[0] - 56, 36, f"Page {document.page} of 9")


def _placed(flowable: Any, *places: dict[str, Any]) -> Any:
    """Return the flowable, not divided between pages, which enters its page into the places."""
    flowable.places = places
    return KeepTogether([flowable])


def _build(story: Sequence[Any], columns: int = 1) -> bytes:
    out = io.BytesIO()
    _Template(out, columns).build(list(story))
    return out.getvalue()


def _pages(source: str, seed: int, *, columns: int = 1, style: Any = None, pages: int = 3) -> Made:
    """Return pages that each have a heading, prose with a fact, a list and a table with a fact."""
    writer, story = Writer(seed), list[Any]()
    body = _JUSTIFIED if columns < 3 else _STYLES["BodyText"]
    text, headings, tables, facts = list[str](), list[str](), list[list[list[str]]](), list[Fact]()
    for number in range(1, pages + 1):
        told: dict[str, Any] = {}
        shown: dict[str, Any] = {}
        sentence, fact = writer.fact(told)
        heading, table = writer.heading(number), writer.table(6, 3 if columns > 1 else 4)
        prose = [
            writer.paragraph(),
            f"{writer.sentence()} {sentence} {writer.sentence()}",
            writer.paragraph(),
        ]
        items = [writer.sentence() for _ in range(3)]
        footnote = f"{number} {writer.sentence()}"
        story += [Paragraph(heading, _STYLES["Heading1"]), Paragraph(prose[0], body)]
        story += [_placed(Paragraph(prose[1], body), told), Paragraph(prose[2], body)]
        story.append(ListFlowable([Paragraph(one, body) for one in items], bulletType="bullet", start="•"))
        story += [Spacer(1, 12), _placed(Table(table, style=style or _GRID), shown), Spacer(1, 12)]
        tail = [writer.paragraph(6) for _ in range(columns * 2)]
        story += [*(Paragraph(one, body) for one in tail), Paragraph(footnote, _FOOTNOTE), PageBreak()]
        text += [*prose, *items, *tail, footnote]
        headings.append(heading)
        tables.append(table)
        facts += [fact, writer.table_fact(table, 3, shown)]
    return Made(source, _build(story, columns), text, headings, tables, (HEAD, "of 9"), facts)


def long_table(seed: int) -> Made:
    """Return a table over three pages, with its header on the first only."""
    writer = Writer(seed)
    table = writer.table(100, 5)
    story = [
        Paragraph("Register", _STYLES["Heading1"]),
        Table(table, style=_GRID, colWidths=[120, 70, 70, 70, 70]),
    ]
    facts = [writer.table_fact(table, row, {"page": page}) for row, page in ((5, 1), (50, 2), (95, 3))]
    return Made("register.pdf", _build(story), (), ["Register"], [table], (HEAD, "of 9"), facts)


def wrapped_cells(seed: int) -> Made:
    """Return a ruled table whose cells have several lines."""
    writer = Writer(seed)
    table = [["Setting", "Default", "Description"]]
    table += [[f"limit {row}", str(row * 7), writer.paragraph(2)] for row in range(1, 9)]
    shown = [[Paragraph(cell, _STYLES["BodyText"]) for cell in row] for row in table]
    story = [
        Paragraph("Settings", _STYLES["Heading1"]),
        Table(shown, style=_GRID[:1], colWidths=[80, 60, 300]),
    ]
    return Made("settings.pdf", _build(story), (), ["Settings"], [table])


def hyphenated(seed: int) -> Made:
    """Return a narrow column with words divided at line ends."""
    writer = Writer(seed)
    sentence, fact = writer.fact({"page": 1})
    lines = ["The administration pub-", "lishes its regu-", "lations every spring."]
    whole = "The administration publishes its regulations every spring."
    style = ParagraphStyle("lines", _STYLES["BodyText"])
    story = [
        Paragraph("Notice", _STYLES["Heading1"]),
        Paragraph("<br/>".join(lines), style),
        Paragraph(sentence, style),
    ]
    return Made("notice.pdf", _build(story), [whole, sentence], ["Notice"], facts=[fact])


def form() -> bytes:
    """Return a form with two text fields, a choice and a check box."""
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4)
    for y, name, value in ((740, "Name:", "Ann Lee"), (710, "City:", "Graz")):
        canvas.drawString(72, y, name)
        canvas.acroForm.textfield(name=name, value=value, x=125, y=y - 5, width=200, height=18)
    canvas.drawString(72, 680, "Plan:")
    canvas.acroForm.choice(name="Plan", value="Gold", options=["Basic", "Gold"], x=125, y=675, height=18)
    canvas.acroForm.checkbox(name="Letters", x=72, y=647, checked=True, size=14)
    canvas.drawString(90, 650, "Send letters.")
    canvas.save()
    return out.getvalue()


def all_pdfs() -> list[Made]:
    """Return all PDFs."""
    return [
        _pages("report.pdf", 1),
        _pages("plain-table.pdf", 2, style=_PLAIN),
        _pages("columns.pdf", 3, columns=2, style=_GRID),
        _pages("columns-plain.pdf", 4, columns=2, style=_PLAIN),
        _pages("three-columns.pdf", 5, columns=3, style=_PLAIN, pages=2),
        long_table(6),
        wrapped_cells(7),
        hyphenated(8),
    ]
