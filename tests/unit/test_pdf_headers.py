"""Headers of two rows in tables of PDFs, columns of text that are no table, and values of forms."""

import io
from pathlib import Path
from typing import Any

import pytest
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Paragraph, SimpleDocTemplate, Table

from tests.support.documents import one, pdf
from tests.support.formats.pdfs import form

GRID: Any = ("GRID", (0, 0), (-1, -1), 0.5, "black")
RULE: Any = ("LINEBELOW", (0, 1), (-1, 1), 0.5, "black")
BOLD: Any = ("FONTNAME", (0, 0), (-1, 1), "Helvetica-Bold")
YEARS = [["Region", "2023", "", "2024", ""], ["", "Q1", "Q2", "Q1", "Q2"]]
SPANS: Any = [("SPAN", (0, 0), (0, 1)), ("SPAN", (1, 0), (2, 0)), ("SPAN", (3, 0), (4, 0))]


def paragraphs(rows: list[list[str]], style: Any, repeated: int = 2) -> list[str]:
    from reportlab.lib.styles import getSampleStyleSheet

    out, text = io.BytesIO(), getSampleStyleSheet()["Normal"]
    parts = [Paragraph("Visits of each quarter.", text), Table(rows, style=style, repeatRows=repeated)]
    SimpleDocTemplate(out, pagesize=A4).build(parts)
    return one(out.getvalue(), "a.pdf").text.split("\n\n")[1:]


@pytest.mark.parametrize("valign", ["TOP", "MIDDLE", "BOTTOM"])
@pytest.mark.parametrize("align", ["LEFT", "CENTER", "RIGHT"])
@pytest.mark.parametrize("look", [[GRID, BOLD], [GRID], [RULE, BOLD], [RULE]])
def test_cell_over_columns_is_part_of_their_names(look: list[Any], align: str, valign: str) -> None:
    values = [[f"Town {n}", *(str(n + at) for at in range(4))] for n in range(60)]
    style = [*SPANS, *look, ("ALIGN", (1, 0), (-1, -1), align), ("VALIGN", (0, 0), (-1, -1), valign)]
    found = paragraphs([*YEARS, *values], style)
    for n in (0, 50):  # on the first page, and on the second
        assert (
            f"Region: Town {n}; 2023 Q1: {n}; 2023 Q2: {n + 1}; 2024 Q1: {n + 2}; 2024 Q2: {n + 3}" in found
        )
    assert len(found) == 60


def test_header_of_two_rows_that_is_not_repeated_names_the_columns_of_the_next_page() -> None:
    values = [[f"Town {n}", *(str(n + at) for at in range(4))] for n in range(60)]
    found = paragraphs([*YEARS, *values], [*SPANS, GRID, ("ALIGN", (1, 0), (-1, 0), "CENTER")], repeated=0)
    assert found[50] == "Region: Town 50; 2023 Q1: 50; 2023 Q2: 51; 2024 Q1: 52; 2024 Q2: 53"


def drawn(*columns: tuple[int, list[str]]) -> str:
    """Return the text of a page with lines at the same heights in columns; "#" marks bold ones."""
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4)
    for x, lines in columns:
        for y, line in zip(range(740, 0, -15), lines, strict=False):
            canvas.setFont("Helvetica-Bold" if line.startswith("#") else "Helvetica", 10)
            canvas.drawString(x, y, line.strip("#"))
    canvas.save()
    return one(out.getvalue(), "a.pdf").text


@pytest.mark.parametrize("is_side_first", [True, False])
def test_columns_with_their_own_headings_are_read_one_after_the_other(is_side_first: bool) -> None:
    side = ["#Contact", "Graz", "ann@example.org", "", "#Skills", "Python", "SQL", "", "#Languages", "German"]
    wide = [
        "#Work",
        "Acme, 2019-2024",
        "Moved billing to services.",
        "Mentored engineers.",
        "Beta, 2015-2019",
    ]
    wide += ["Built reports.", "", "#Education", "MSc in 2015", "Thesis on query plans.", "BSc in 2012"]
    first, second = (side, wide) if is_side_first else (wide, side)
    text = drawn((50, first), (250, second))
    at = [text.index(line.strip("#")) for line in [*first, *second] if line]
    assert at == sorted(at)
    assert [line for line in text.split("\n\n") if line.startswith("# ")] == [
        f"# {line[1:]}" for line in [*first, *second] if line.startswith("#")
    ]


def test_table_with_bold_groups_of_rows_remains_one() -> None:
    names = ["#Fruit", "#Citrus", "Lemons", "Oranges", "#Berries", "Currants", "#Nuts", "Almonds", "Walnuts"]
    values = ["#Origin", "", "Sicily", "Valencia", "", "Styria", "", "Avola", "#Grenoble"]
    text = drawn((50, names), (250, values))
    assert "Oranges | Valencia" in text
    assert "Walnuts | Grenoble" in text


def test_heading_ends_a_table() -> None:
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4)
    for y, row in ((740, ("Bill to", "Terms")), (725, ("Ann Lee", "Cash")), (685, ("Oil", "3"))):
        canvas.drawString(72, y, row[0])
        canvas.drawString(250, y, row[1])
    canvas.drawString(72, 670, "Nuts")
    canvas.drawString(250, 670, "5")
    canvas.setFont("Helvetica-Bold", 18)
    canvas.drawString(72, 703, "Invoice")
    canvas.save()
    text = one(out.getvalue(), "a.pdf").text
    assert text == "Bill to | Terms\n\nAnn Lee | Cash\n\n# Invoice\n\nOil | 3\n\nNuts | 5"


def test_number_below_a_number_begins_a_row() -> None:
    rows = [["No.", "Item", "Price"], ["1", "Oil", "3.00"], ["2", "Nuts", "5.00"], ["", "Total", "8.00"]]
    style = [(f"{side}PADDING", (0, 0), (-1, -1), 1) for side in ("TOP", "BOTTOM")]
    assert paragraphs(rows, [*style, ("ALIGN", (2, 0), (2, -1), "RIGHT")])[1:] == [
        "No.: 2; Item: Nuts; Price: 5.00",
        "Item: Total; Price: 8.00",
    ]


def test_values_of_form_fields_follow_their_labels() -> None:
    values = "Name: | Ann Lee\n\nCity: | Graz\n\nPlan: | Gold"
    assert one(form(), "a.pdf").text == f"{values}\n\n\u2612 Send letters."


def test_page_of_form_fields_only_is_read() -> None:
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4)
    canvas.line(72, 730, 272, 730)
    canvas.acroForm.textfield(value="Ann Lee", x=72, y=735, width=200, height=18)
    canvas.acroForm.checkbox(name="paid", x=72, y=700, checked=True, size=14)
    canvas.save()
    found = one(out.getvalue(), "a.pdf")
    assert (found.text, found.warnings) == ("Ann Lee\n\n\u2612", ())


def test_passwords_of_forms_are_left_out() -> None:
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4)
    canvas.drawString(72, 740, "Password:")
    canvas.acroForm.textfield(value="secret", fieldFlags="password", x=140, y=735, width=200, height=18)
    canvas.save()
    assert one(out.getvalue(), "a.pdf").text == "Password:"


def test_check_boxes_and_radio_buttons_are_read_with_their_state() -> None:
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4)
    for y, checked in ((740, True), (700, False)):
        canvas.acroForm.checkbox(name=f"box {y}", x=72, y=y - 3, checked=checked, size=14)
        canvas.drawString(90, y, f"Send letters to {y}.")
    canvas.acroForm.checkbox(name="hidden", x=300, y=697, checked=True, size=14, annotationFlags="hidden")
    canvas.drawString(72, 660, "Married:")
    for x, value in ((125, "Yes"), (175, "No")):
        canvas.acroForm.radio(name="m", value=value, x=x, y=657, selected=value == "No", size=14)
        canvas.drawString(x + 17, 660, value)
    canvas.save()
    assert one(out.getvalue(), "a.pdf").text.split("\n\n") == [
        "\u2612 Send letters to 740.",
        "\u2610 Send letters to 700.",
        "Married: \u2610 Yes \u2612 No",
    ]


def test_merged_value_of_a_table_without_header_is_no_name() -> None:
    rows = [["Name", "Ann Lee", ""], ["Visits", "3", "5"], ["Stays", "4", "6"]]
    assert paragraphs(rows, [GRID, ("SPAN", (1, 0), (2, 0))]) == [
        "Name |  | Ann Lee",
        "Visits | 3 | 5",
        "Stays | 4 | 6",
    ]


@pytest.mark.parametrize("drawn_as", [".fed cba", "cba) Tj -36 0 Td (.fed"])
def test_text_from_right_to_left_is_read_in_its_order(drawn_as: str) -> None:
    names = " ".join(f"/uni{code:04X}" for code in range(0x5D0, 0x5D6))
    content = pdf(drawn_as).replace(
        b"/Helvetica", f"/Courier /Encoding << /Differences [97 {names}] >>".encode()
    )
    document = one(content, "a.pdf")
    assert document.text == "\u05d0\u05d1\u05d2 \u05d3\u05d4\u05d5."
    place = document.spans[0].location
    assert place is not None
    assert 0.05 < place["rect"][0] < 0.12


def test_letters_that_a_browser_wrote_as_shown_are_read_in_their_order() -> None:
    content = (Path(__file__).parent / "documents" / "right-to-left.pdf").read_bytes()
    words = "\u0639\u0642\u062f \u0627\u0644\u0639\u0645\u0644 \u0645\u0646 2025"
    assert one(content, "a.pdf").text == words
