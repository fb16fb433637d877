"""Small documents whose sentences are on known pages, slides and cells, and share one chunk."""

import io
from dataclasses import dataclass

import openpyxl
from pptx import Presentation
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas

from tests.support.formats.truth import Made


@dataclass(frozen=True, slots=True)
class Located:
    """A document, a question about one of its sentences, and the place of the sentence."""

    made: Made
    question: str
    sentence: str
    text: str
    """Short text of the location."""
    chunk_text: str
    """Short text of the locations of the whole chunk."""


PAGES = (
    "The pump needs new oil every spring. Use mineral oil of grade forty.",
    "The warranty of the motor ends after seven years. Keep the receipt in the drawer.",
)


def two_pages(source: str = "pump.pdf") -> Located:
    """Return a PDF of two short pages, which become one chunk; the question is about the second."""
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4)
    for page in PAGES:
        for at, sentence in enumerate(page.split(". ")):
            canvas.drawString(72, 700 - 16 * at, sentence.rstrip(".") + ".")
        canvas.showPage()
    canvas.save()
    sentence = "The warranty of the motor ends after seven years."
    question = "When does the warranty of the motor end?"
    return Located(Made(source, out.getvalue()), question, sentence, "p. 2", "pp. 1–2")


def three_slides() -> Located:
    """Return slides without headings of their own, which become one chunk; the question is about the last."""
    deck = Presentation()
    texts = ("Bring warm boots.", "Lunch is at noon.", "The harbour opens at seven in the morning.")
    for text in texts:
        slide = deck.slides.add_slide(deck.slide_layouts[6])
        slide.shapes.add_textbox(0, 0, 4_000_000, 1_000_000).text_frame.text = text
    out = io.BytesIO()
    deck.save(out)
    question = "When does the harbour open?"
    return Located(Made("trip.pptx", out.getvalue()), question, texts[2], "slide 3", "slides 1–3")


def price_list() -> Located:
    """Return a sheet of prices; the question is about the row of the pear."""
    book = openpyxl.Workbook()
    book.active.title = "Prices"
    for row in (["Fruit", "Price", "Unit"], ["Apple", 5, "bag"], ["Pear", 7, "box"], ["Plum", 3, "jar"]):
        book.active.append(row)
    out = io.BytesIO()
    book.save(out)
    cited = "Fruit: Pear; Price: 7; Unit: box"
    made = Made("prices.xlsx", out.getvalue())
    return Located(made, "What is the price of a pear?", cited, "sheet Prices, A3:C3", "sheet Prices, A2:C4")
