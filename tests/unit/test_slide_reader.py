"""The reader of PPTX: charts, merged cells and the order of shapes."""

import io
from collections.abc import Sequence
from typing import Any

import pytest
from pptx import Presentation
from pptx.chart import data
from pptx.enum.chart import XL_CHART_TYPE
from pptx.opc.package import Part
from pptx.opc.packuri import PackURI
from pptx.oxml import parse_xml
from pptx.util import Inches

from tests.support.documents import one

DATA: Any = data
PLACE = (Inches(1), Inches(2), Inches(6), Inches(4))


def test_charts_are_tables_of_their_values() -> None:
    deck, out = Presentation(), io.BytesIO()
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "Sales"
    values = DATA.CategoryChartData()
    values.categories = ["East", "West"]
    values.add_series("2025", (19.25, None))
    values.add_series("Plan", (18, 20))
    chart = slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *PLACE, values).chart
    chart.has_title = True
    chart.chart_title.text_frame.text = "Sales by region"
    points = DATA.XyChartData()
    points.add_series("Trips").add_data_point(1.5, 2)
    slide.shapes.add_chart(XL_CHART_TYPE.XY_SCATTER, *PLACE, points)
    deck.save(out)
    assert one(out.getvalue(), "a.pptx").text.split("\n\n") == [
        "# Sales",
        "Sales by region",
        "Category: East; 2025: 19.25; Plan: 18",
        "Category: West; Plan: 20",
        "Category: 1.5; Trips: 2",
    ]


def test_diagram_is_a_list_of_its_texts() -> None:
    deck, out = Presentation(), io.BytesIO()
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    drawing = "http://schemas.openxmlformats.org/drawingml/2006"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    point = f'<d:pt><d:t><a:p xmlns:a="{drawing}/main"><a:r><a:t>Build</a:t></a:r></a:p></d:t></d:pt>'
    model = f'<d:dataModel xmlns:d="{drawing}/diagram">{point}</d:dataModel>'.encode()
    part = Part(PackURI("/ppt/diagrams/data1.xml"), "application/xml", slide.part.package, model)
    main = "http://schemas.openxmlformats.org/presentationml/2006/main"
    graphic = (
        f'<p:graphicFrame xmlns:p="{main}" xmlns:d="{drawing}/diagram"'
        f' xmlns:r="{office}"><d:relIds r:dm="{slide.part.relate_to(part, office + "/diagramData")}"/>'
        "</p:graphicFrame>"
    )
    slide.shapes.title.text = "Plan"
    slide.shapes._spTree.append(parse_xml(graphic))
    deck.save(out)
    assert one(out.getvalue(), "a.pptx").text == "# Plan\n\n- Build"


def test_cell_merged_over_rows_stands_in_each_of_them() -> None:
    deck, out = Presentation(), io.BytesIO()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    table = slide.shapes.add_table(4, 3, *PLACE).table
    rows = (("Region", "Head", "Q1"), ("North", "Kim", "1"), ("South", "", "2"), ("All", "", "3"))
    for number, row in enumerate(rows):
        for column, text in enumerate(row):
            table.cell(number, column).text = text
    table.cell(1, 1).merge(table.cell(2, 1))
    table.cell(3, 0).merge(table.cell(3, 1))
    deck.save(out)
    assert one(out.getvalue(), "a.pptx").text.split("\n\n") == [
        "# Slide 1",
        "Region: North; Head: Kim; Q1: 1",
        "Region: South; Head: Kim; Q1: 2",
        "Region: All; Q1: 3",
    ]


def boxes(
    parent: Any, places: Sequence[tuple[str, float, float]], size: tuple[float, float] = (3, 1)
) -> None:
    """Add text boxes, each with its text, left and top in inches."""
    for text, left, top in places:
        parent.add_textbox(*map(Inches, (left, top, *size))).text_frame.text = text


@pytest.mark.parametrize(
    "places",
    [
        pytest.param([("b", 1, 2), ("c", 1, 4), ("a", 1, 1)], id="a later one above"),
        pytest.param([("c", 1, 4), ("b", 5, 2.5), ("a", 1, 2)], id="side by side"),
        pytest.param([("a", 1, 2), ("b", 1, 4), ("c", 5, 2), ("d", 5, 4)], id="columns"),
        pytest.param([("c", 5, 2), ("d", 5, 4), ("a", 1, 2), ("b", 1, 4)], id="columns, right first"),
        pytest.param([("b", 1, 3), ("a", 1, 2), ("c", 5, 2), ("d", 5, 3)], id="columns, one later above"),
        pytest.param([("a", 1, 2), ("b", 5, 2), ("c", 1, 4), ("d", 5, 4)], id="rows of labels and texts"),
        pytest.param([("a", 1.2, 2.5), ("b", 1, 2)], id="overlapping stay as drawn"),
    ],
)
def test_shapes_in_any_drawing_order_are_read_as_shown(places: list[tuple[str, float, float]]) -> None:
    deck, out = Presentation(), io.BytesIO()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    boxes(slide.shapes, places)
    deck.save(out)
    words = one(out.getvalue(), "a.pptx").text.split("\n\n")
    assert words == ["# Slide 1", *sorted(text for text, _, _ in places)]


@pytest.mark.parametrize(
    ("first", "second", "written"),
    [
        pytest.param("\u0627\u0644\u0633\u0639\u0631", "\u062e\u0637\u0629 Plus", "", id="Arabic"),
        pytest.param("Plan", "Price", "1", id="marked"),
    ],
)
def test_shapes_side_by_side_are_read_from_the_right_in_slides_written_so(
    first: str, second: str, written: str
) -> None:
    deck, out = Presentation(), io.BytesIO()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    boxes(slide.shapes, [(second, 1, 2), (first, 5, 2)])
    for shape in slide.shapes if written else ():
        shape.text_frame.paragraphs[0]._p.get_or_add_pPr().set("rtl", written)
    deck.save(out)
    assert one(out.getvalue(), "a.pptx").text.split("\n\n") == ["# Slide 1", first, second]


def test_shapes_of_a_group_stay_together_at_its_place() -> None:
    deck, out = Presentation(), io.BytesIO()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    boxes(slide.shapes, [("last", 1, 6), ("right", 6, 2)])
    group = slide.shapes.add_group_shape()
    boxes(group.shapes, [("second", 1, 3), ("first", 1, 2)])
    boxes(slide.shapes, [("top", 1, 1)], (8, 0.5))
    deck.save(out)
    words = one(out.getvalue(), "a.pptx").text.split("\n\n")
    assert words == ["# Slide 1", "top", "first", "second", "right", "last"]


def test_placeholder_with_the_place_of_its_layout_is_read_as_drawn() -> None:
    deck, out = Presentation(), io.BytesIO()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.placeholders[1].text_frame.text = "body"
    boxes(slide.shapes, [("second", 1, 6), ("first", 1, 5)])
    deck.save(out)
    words = one(out.getvalue(), "a.pptx").text.split("\n\n")
    assert words == ["# Slide 1", "- body", "first", "second"]


def test_fallback_of_newer_content_is_left_out() -> None:
    deck, out = Presentation(), io.BytesIO()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    boxes(slide.shapes, [("formula", 1, 2), ("picture of it", 1, 2), ("above", 1, 1)])
    tree = slide.shapes._spTree
    compatibility = "http://schemas.openxmlformats.org/markup-compatibility/2006"
    either = parse_xml(
        f'<m:AlternateContent xmlns:m="{compatibility}"><m:Choice/><m:Fallback/></m:AlternateContent>'
    )
    for branch, shape in zip(either, tree[2:4], strict=True):
        branch.append(shape)
    tree.insert(2, either)
    deck.save(out)
    assert one(out.getvalue(), "a.pptx").text.split("\n\n") == ["# Slide 1", "above", "formula"]
