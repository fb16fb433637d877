"""The reader of PPTX: charts and merged cells."""

import io
from typing import Any

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
