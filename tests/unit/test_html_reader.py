"""The reader of HTML: lists, tables and what pages hide in their text."""

from tests.support.documents import one


def text(body: str) -> str:
    return one(f"<!doctype html><body>{body}</body>".encode(), "a.html").text


def test_invisible_characters_do_not_cut_words() -> None:
    assert text("<h1>In&shy;stall&#8203;</h1><p>em&shy;ploy\ufeffee</p>") == "# Install\n\nemployee"
    assert text("<table><tr><th>A<th>B<tr><td>so&shy;ft<td>2</table>") == "A: soft; B: 2"
