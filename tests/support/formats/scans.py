"""Scans: pages of known lines as pictures, turned and faded as by a poor scanner, between pages of text."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pypdfium2
from PIL import Image
from reportlab.lib.pagesizes import A4
from reportlab.lib.utils import ImageReader
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas

WIDTH, HEIGHT = A4
_FONT = "Helvetica"


@dataclass(frozen=True, slots=True)
class Drawn:
    """Line of text on a page of A4, in points from the top left corner."""

    text: str
    x: float
    baseline: float
    size: float = 11

    def middle(self, skew: float = 0.0) -> tuple[float, float]:
        """Return its middle as shares of the page, after turning the page clockwise by degrees."""
        x = self.x + stringWidth(self.text, _FONT, self.size) / 2 - WIDTH / 2
        y, angle = self.baseline - self.size / 3 - HEIGHT / 2, math.radians(skew)
        return (
            0.5 + (x * math.cos(angle) - y * math.sin(angle)) / WIDTH,
            0.5 + (x * math.sin(angle) + y * math.cos(angle)) / HEIGHT,
        )


@dataclass(frozen=True, slots=True)
class Sheet:
    """Page of a document."""

    lines: Sequence[Drawn]
    scanned: bool = True
    """False: it has a text layer."""
    skew: float = 0.0
    """Degrees by which it lies on the scanner, clockwise."""
    ink: int = 0
    """Gray of the letters, 0 to 255."""
    paper: int = 255
    """Gray of the page."""


def prose(texts: Sequence[str], *, x: float = 72, top: float = 120, size: float = 11) -> list[Drawn]:
    """Return lines below each other."""
    return [Drawn(text, x, top + number * 1.4 * size, size) for number, text in enumerate(texts)]


def pdf_of(sheets: Sequence[Sheet]) -> bytes:
    """Return a PDF whose scanned pages are pictures, without a text layer."""
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4)
    for sheet in sheets:
        if sheet.scanned:
            canvas.drawImage(ImageReader(picture(sheet)), 0, 0, WIDTH, HEIGHT)
        else:
            _draw(canvas, sheet.lines)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


def picture(sheet: Sheet, *, dots_per_inch: int = 150) -> Any:
    """Return a page as a gray picture of Pillow."""
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4)
    _draw(canvas, sheet.lines)
    canvas.save()
    page = pypdfium2.PdfDocument(out.getvalue())[0]
    drawn = page.render(scale=dots_per_inch / 72, grayscale=True).to_pil()
    turned = drawn.rotate(-sheet.skew, resample=Image.Resampling.BICUBIC, fillcolor=255)
    return turned.point([sheet.ink + (sheet.paper - sheet.ink) * value // 255 for value in range(256)])


def file_of(sheet: Sheet, kind: str, *, dots_per_inch: int = 150) -> bytes:
    """Return a page as an image file: PNG, JPEG or TIFF."""
    out = io.BytesIO()
    picture(sheet, dots_per_inch=dots_per_inch).save(out, kind)
    return out.getvalue()


def _draw(canvas: Any, lines: Sequence[Drawn]) -> None:
    for line in lines:
        canvas.setFont(_FONT, line.size)
        canvas.drawString(line.x, HEIGHT - line.baseline, line.text)
