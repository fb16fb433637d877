"""The reader of HTML: lists, tables and what pages hide in their text."""

import pytest

from tests.support.documents import one


def text(body: str) -> str:
    return one(f"<!doctype html><body>{body}</body>".encode(), "a.html").text


def test_invisible_characters_do_not_cut_words() -> None:
    assert text("<h1>In&shy;stall&#8203;</h1><p>em&shy;ploy\ufeffee</p>") == "# Install\n\nemployee"
    assert text("<table><tr><th>A<th>B<tr><td>so&shy;ft<td>2</table>") == "A: soft; B: 2"


def test_permalink_mark_is_no_part_of_a_heading() -> None:
    assert text('<h2>Use C#<a class="headerlink" href="#u">¶</a></h2><p>x</p>') == "## Use C#\n\nx"


def test_reference_to_a_note_is_not_part_of_the_number_before_it() -> None:
    references = '10<sup><a href="#n">1</a></sup> m<sup>2</sup><sup class="r"> <a href="#c">[7]</a></sup>'
    assert text(f"<p>Costs {references}, x<sup><a href=y>up</a></sup>.</p>") == "Costs 10 m2, xup."


@pytest.mark.parametrize(
    "hidden",
    [
        "<p hidden>secret</p>",
        '<div style="color: red; DISPLAY : none !important"><p>secret</p></div>',
        "<span style='visibility:hidden'>secret</span>",
        "<template><p>secret</p></template>",
        "<table><tr><td style=display:none>secret</table>",
        "<video>secret</video><audio>secret</audio><datalist><option>secret</datalist>",
    ],
)
def test_elements_that_are_not_shown_are_left_out(hidden: str) -> None:
    assert text(f"<p>Before.</p>{hidden}<p>After.</p>") == "Before.\n\nAfter."


@pytest.mark.parametrize(
    "shown",
    [
        "<p aria-hidden=true>shown</p>",
        '<p style="text-display:none">shown</p>',
        "<p hidden=until-found>shown</p>",
        "<div id=a style=display:none>shown</div><button aria-controls='b a'></button>",
        "<div role=tabpanel hidden>shown</div>",
        "<div style=display:none><math><mi>shown</mi></math></div>",
    ],
)
def test_elements_that_are_shown_or_open_on_a_click_are_read(shown: str) -> None:
    assert text(f"<p>Before.</p>{shown}<p>After.</p>").split("\n\n") == ["Before.", "shown", "After."]


def test_page_that_its_script_unhides_is_read() -> None:
    assert text("<noscript>Off</noscript><div style=display:none><p>All of the text.</p></div>") == (
        "All of the text."
    )


def test_raised_digits_are_no_part_of_the_number_before_them() -> None:
    assert text("<p>10<sup>3</sup> m<sup>2</sup> on the 1<sup>st</sup></p>") == "10^3 m2 on the 1st"
    assert text("<table><tr><th>A<th>B<tr><td>5<sup>2</sup><td>1</table>") == "A: 5^2; B: 1"


def test_formula_is_read_once_as_tex_if_it_has_it() -> None:
    formula = "<math><semantics><mfrac><mi>a</mi><mi>b</mi></mfrac>%s</semantics></math>"
    tex = formula % r'<annotation encoding="application/x-tex">\frac{a}{b}</annotation>'
    shown = '<span class="katex-html" aria-hidden="true"><b>a</b>b</span>'
    katex = f'<span class="katex"><span class="katex-mathml">{tex}</span>{shown}</span>'
    page = f'<p>Let <i style="display: none">{tex}</i>, {katex}, {formula % ""}.</p>'
    assert text(page) == r"Let \frac{a}{b}, \frac{a}{b}, ab."


def test_lists_have_levels_and_numbers() -> None:
    inner = "<ul><li>In mail<ol><li>Short</ol><li>In person</ul>"
    assert text(f"Do:<ol><li>Ask{inner}<li><p>Book</p><p>a train</p></ol><ol start=3><li>Go</ol>") == (
        "Do:\n\n1. Ask\n  - In mail\n    1. Short\n  - In person\n2. Book\n  a train\n\n3. Go"
    )


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            "<tr><th rowspan=2>Item<th colspan=2>Price<tr><th>Net<th>Gross<tr><td>Oil<td>2<td>3",
            "Item: Oil; Price Net: 2; Price Gross: 3",
        ),
        ("<tr><th>Item<th colspan=2>Price<tr><td>Oil<td>2<td>3", "Item: Oil; Price: 2; Price: 3"),
        ("<tr><th>Name<td>Ann<tr><th>Age<td>5", "Name | Ann\n\nAge | 5"),
        (
            "<tr><th colspan=2>Ann Lee<tr><th>Born<td>1961<tr><th>Age<td>5",
            "Ann Lee\n\nBorn | 1961\n\nAge | 5",
        ),
        ("<tr><td><th>North<th>South<tr><th>Oil<td>2<td>3", "column 1: Oil; North: 2; South: 3"),
        ("<thead><tr><td>Item<td>Net<tbody><tr><td>Oil<td>red", "Item: Oil; Net: red"),
        ("<tr><th>Item<th>Net<tr><th>Oil<th>red", "Item: Oil; Net: red"),
    ],
)
def test_names_of_columns_are_the_rows_of_header_cells(rows: str, expected: str) -> None:
    assert text(f"<table>{rows}</table>") == expected


def test_reading_of_a_character_is_not_part_of_the_word() -> None:
    ruby = "<ruby>霧<rp>(</rp><rt>きり</rt><rp>)</rp></ruby>"
    table = f"<table><tr><th>A<th>B<tr><td>{ruby}<td>1</table>"
    assert text(f"<p>{ruby}の夜</p>{table}") == "霧の夜\n\nA: 霧; B: 1"
