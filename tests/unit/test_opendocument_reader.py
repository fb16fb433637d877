"""The reader of ODT and ODP: comments, cells merged over rows, and the order of shapes."""

import pytest

from tests.support.documents import one
from tests.support.formats.office import opendocument

COMMENT = (
    '<office:annotation><dc:creator xmlns:dc="http://purl.org/dc/elements/1.1/">Ann\n Lee</dc:creator>'
    "<text:p>Since <text:s/>when?</text:p><text:list><text:list-item><text:p>Ask.</text:p></text:list-item>"
    "</text:list></office:annotation>"
)
NOTE = "<text:note><text:note-body><text:p>Not in May.</text:p></text:note-body></text:note>"
BOX = f"<draw:frame><draw:text-box><text:p>Call{NOTE} us.</text:p></draw:text-box></draw:frame>"


def text_of(body: str) -> list[str]:
    kind = "application/vnd.oasis.opendocument.text"
    return one(opendocument(kind, f"<office:text>{body}</office:text>"), "a.odt").text.split("\n\n")


def test_comments_follow_their_paragraph_with_their_author() -> None:
    unsigned = "<office:annotation><text:p>Check.</text:p></office:annotation>"
    empty = "<office:annotation><text:p/></office:annotation>"
    body = (
        f"<text:p>Open {COMMENT}daily.</text:p><text:h>Prices{unsigned}{empty}</text:h><text:p>Free.</text:p>"
    )
    assert text_of(body) == [
        "Open daily.",
        "Comment by Ann Lee: Since when? Ask.",
        "# Prices",
        "Comment: Check.",
        "Free.",
    ]


def test_notes_comments_and_boxes_of_a_table_follow_it_once() -> None:
    cells = f"<table:table-cell><text:p>Open{NOTE}{COMMENT}</text:p></table:table-cell>"
    cells += f"<table:table-cell><text:h>Daily</text:h><text:p>at 9.</text:p>{BOX}</table:table-cell>"
    table = f"<table:table><table:table-row>{cells}</table:table-row></table:table>"
    assert text_of(f"{table}<text:p>End{BOX}.</text:p>") == [
        "Open | Daily at 9.",
        "Not in May.",
        "Comment by Ann Lee: Since when? Ask.",
        "Call us.",
        "Not in May.",
        "End.",
        "Call us.",
        "Not in May.",
    ]


def test_boxes_within_boxes_are_read_once() -> None:
    body = "<text:p>Innermost.</text:p>"
    for _ in range(40):
        body = f"<text:p><draw:frame><draw:text-box>{body}</draw:text-box></draw:frame></text:p>"
    assert text_of(body) == ["Innermost."]


def test_cell_merged_over_rows_stands_in_each_of_them() -> None:
    def row(*cells: str) -> str:
        return f"<table:table-row>{''.join(cells)}</table:table-row>"

    def cell(text: str, attributes: str = "") -> str:
        return f"<table:table-cell {attributes}><text:p>{text}</text:p></table:table-cell>"

    covered = "<table:covered-table-cell/>"
    merged = 'table:number-rows-spanned="2" table:number-columns-spanned="2"'
    rows = [
        row(cell("Region"), cell("Head"), cell("Q1"), cell("Q2")),
        row(cell("North", 'table:number-rows-spanned="3"'), cell("Kim"), cell("4", merged), covered),
        row(covered, cell("Lou"), '<table:covered-table-cell table:number-columns-repeated="2"/>'),
        row(covered, cell("Max"), cell("5"), cell("6")),
        row(cell("All", 'table:number-columns-spanned="2"'), covered, cell("9"), cell("10")),
    ]
    assert text_of(f"<table:table>{''.join(rows)}</table:table>") == [
        "Region: North; Head: Kim; Q1: 4",
        "Region: North; Head: Lou; Q1: 4",
        "Region: North; Head: Max; Q1: 5; Q2: 6",
        "Region: All; Q1: 9; Q2: 10",
    ]


def test_comment_on_a_slide_is_marked_as_one() -> None:
    shape = "<draw:frame><draw:text-box><text:p>Plan</text:p></draw:text-box></draw:frame>"
    body = f"<office:presentation><draw:page>{COMMENT}{shape}</draw:page></office:presentation>"
    content = opendocument("application/vnd.oasis.opendocument.presentation", body)
    assert one(content, "a.odp").text.split("\n\n") == [
        "# Slide 1",
        "Comment by Ann Lee: Since when? Ask.",
        "Plan",
    ]


@pytest.mark.parametrize(
    ("left", "right", "read"),
    [
        pytest.param("one", "two", ["above", "one", "two", "Notes."], id="English"),
        pytest.param(
            "\u05e9\u05ea\u05d9\u05dd",
            "\u05d0\u05d7\u05ea",
            ["above", "\u05d0\u05d7\u05ea", "\u05e9\u05ea\u05d9\u05dd", "Notes."],
            id="Hebrew",
        ),
    ],
)
def test_shapes_of_a_slide_are_read_as_shown(left: str, right: str, read: list[str]) -> None:
    def shape(text: str, x: str, y: str, width: str = "5cm") -> str:
        box = f'svg:x="{x}" svg:y="{y}" svg:width="{width}" svg:height="20mm"'
        return f"<draw:frame {box}><draw:text-box><text:p>{text}</text:p></draw:text-box></draw:frame>"

    notes = "<presentation:notes><text:p>Notes.</text:p></presentation:notes>"
    shapes = shape(right, "4in", "6.5cm") + shape(left, "10mm", "6.5cm")
    shapes += shape("above", "1cm", "2cm", "400pt")
    body = f"<office:presentation><draw:page>{shapes}{notes}</draw:page></office:presentation>"
    content = opendocument("application/vnd.oasis.opendocument.presentation", body)
    assert one(content, "a.odp").text.split("\n\n") == ["# Slide 1", *read]
