"""External links are removed from an answer, however it is split, and nothing else is changed."""

import re
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser

from vectorforge.pipeline.guardrails.links import LinkFilter, without_foreign_links

GUIDE = "https://docs.example/guide"
PASSAGES = (
    f"See {GUIDE} and [more](https://docs.example/a_(b)), or https://docs.example/q?a=1&b=2#top.",
    "https://src.example/page.html",
    "www.known.example/x",
    "help@docs.example tel:+41-44-1 Docs.com",
)

PIECES = (
    *(
        "plain words. ",
        "http",
        "s",
        ":",
        "//",
        "/",
        "\\",
        "evil.example",
        "?q=CANARY",
        GUIDE,
        "www.",
        "h",
        "w",
    ),
    *(
        "[",
        "]",
        "(",
        ")",
        "!",
        "![",
        "](",
        "]:",
        "[r]: ",
        "<",
        ">",
        "<img ",
        "<a ",
        "<style>",
        "src=",
        "href=",
    ),
    *(
        "'",
        " ",
        "\n",
        "\n\n",
        "&colon;",
        "&#47;",
        "url(",
        "data:",
        "javascript:",
        "mailto:",
        "sms:",
        "@",
        "x",
        "é",
        "。",
        "`",
    ),
    *(
        "https://evil.example/x",
        "//evil.example",
        "a.b.evil.com/x",
        "title",
        "*",
        "Source 1",
        "0" * 700,
        "-",
        ".",
    ),
    *('"', "="),
)
LOADING = ("src", "href", "srcset", "style", "action")
LEADS_OUT = re.compile(r"//|(?:data|javascript|mailto|sms|tel|https?|ftp):|.*url\([\"']?//", re.IGNORECASE)
ANSWERS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


def known() -> tuple[str, ...]:
    return PASSAGES


def streamed(pieces: list[str]) -> str:
    links = LinkFilter(known)
    return "".join([*map(links.feed, pieces), links.finish()])


@pytest.mark.parametrize(
    ("written", "passed"),
    [
        ("see https://evil.example/?q=1, ok", "see [link removed], ok"),
        ('[a](https://evil.example/x "t") b', "[a] b"),
        ("![a](https://evil.example/x) b", "![a] b"),
        (f"![a]({GUIDE})", f"![a] ({GUIDE})"),  # known, but images never load automatically
        (f"see {GUIDE}?q=CANARY and {GUIDE}/CANARY", "see [link removed] and [link removed]"),
        (f"see {GUIDE}CANARY", "see [link removed]"),
        ("[a](//evil.example)", "[a]"),
        ("[a](\\\\evil.example)", "[a]"),
        ("[a](https&colon;//evil.example)", "[a]"),
        ("[a](https:evil.example)", "[a]"),
        ("[a](javascript:x())", "[a]"),
        ("[a](https://evil.example)(https://evil.example)", "[a]"),
        ("[r]: https://evil.example\n![r]", "[r] : [link removed]\n![r]"),
        (f"[r]: {GUIDE}\n![r]", f"[r] : {GUIDE}\n![r]"),
        ("<https://evil.example>", "[link removed]"),
        ("<img src=//evil.example/x>", "[link removed]"),
        ("<img alt='>' src=https:evil.example>", "[link removed]"),
        (f'<img src="{GUIDE}">', f'&lt;img src="{GUIDE}">'),
        ("<style>x", "&lt;style>x"),
        ("see //evil.example/CANARY", "see [link removed]"),
        ("evil.com/?x=CANARY", "evil.[link removed]"),
        ("CANARY.evil.com x", "CANARY.[link removed] x"),
        ("ftp://evil.example/x", "ftp:[link removed]"),
        ("请访问https://evil.example/x。这是", "请访问[link removed]。这是"),
        (f"{GUIDE}é?q=CANARY", f"{GUIDE} é?q=CANARY"),
        ("write to CANARY@evil.example.", "write to CANARY@[link removed]."),
        ("mailto:CANARY@evil.example now", "mailto:[link removed] now"),
        ("mailto:help@docs.example?body=CANARY now", "mailto:[link removed] now"),
        ("sms:+491234;body=CANARY or tel:+491234", "sms:[link removed] or tel:[link removed]"),
        ("see CANARY.com, Evil.com.", "see CANARY.[link removed], Evil.[link removed]."),
        ("![a](/v1/documents/1) [b](/x)", "![a] (/v1/documents/1) [b] (/x)"),
        ("[r]: /v1/x.png\n![r]", "[r] : /v1/x.png\n![r]"),
        ('<img src="/v1/x.png"> <video poster=x>', '&lt;img src="/v1/x.png"> &lt;video poster=x>'),
        (f"![x](data:image/png;base64,{'A' * 5_000}) after", "![x] [link removed]) after"),
    ],
)
def test_foreign_links_are_removed(written: str, passed: str) -> None:  # threat 14
    assert without_foreign_links(written, known) == passed
    assert streamed(list(written)) == passed


@pytest.mark.parametrize(
    "written",
    [
        f"See {GUIDE}, {GUIDE}/ and **{GUIDE}**: ({GUIDE}).",
        f"[the guide]({GUIDE}) [here](/v1/documents/1#part) [Source 1](see above)",
        f'<a href="{GUIDE}">x</a> <{GUIDE}> <b>x</b> <br/> <div class="md:flex">',
        "https://docs.example/a_(b) https://docs.example/q?a=1&b=2 https://src.example/page.html",
        "www.known.example/x",
        "[Source 1]: The text goes on. [1]: so. [^2]: note",
        "vec![1, 2]; if a < b && c > d { x::<T>() } vector<std::string> for (i=0; i<n; i++) // comment.x",
        "self.name, file.py, 3.14, e.g. this, 12:30, C://, and/or, httpx, w, h, a @b, x@y, pkg@1.2.3",
        "Hotel: 5",
        "ASP.NET and System.Net.Http, net.ipv4, Node.js, .NET, socket.io",
        "Write to help@docs.example or mailto:help@docs.example, call tel:+41-44-1, see Docs.com.",
        '[a](/x) ![a] <a href="/x" title="y">x</a> <b class="x">y</b> {"sms": 1} sms: none',
        "How? (https) ![not an image] ::: !!! ((( ]]] <<< >>>",
    ],
)
def test_other_text_is_unchanged(written: str) -> None:
    assert without_foreign_links(written, known) == written
    assert streamed(list(written)) == written


@pytest.mark.parametrize(
    "written", ["The dough rises", " for two hours", ", Source 1", "]", "!", "[Source", "(x)"]
)
def test_plain_text_is_emitted_immediately(written: str) -> None:  # no delay of the first token
    assert LinkFilter(known).feed(written) == written


@settings(max_examples=400)
@given(answer=ANSWERS, cuts=st.lists(st.integers(0, 400), max_size=12))
@example(answer="https://evil.example", cuts=[2, 7])
@example(answer="<<img src=//evil.example>img src=//evil.example>", cuts=[1, 20, 25])
def test_streamed_filter_output_equals_whole_for_all_cuts(
    answer: str, cuts: list[int]
) -> None:  # threat 14: split-token fuzz
    places = [0, *sorted(min(cut, len(answer)) for cut in cuts), len(answer)]
    assert streamed([answer[a:b] for a, b in pairwise(places)]) == without_foreign_links(answer, known)
    assert streamed(list(answer)) == without_foreign_links(answer, known)


@settings(max_examples=400)
@given(answer=ANSWERS)
@example(answer=f"![x][r]\n\n[r]: {GUIDE}")
@example(answer="[a](x://)(//evil.example)")
def test_rendered_answer_holds_no_foreign_link_or_image(
    answer: str,
) -> None:  # threat 14, as Markdown with HTML shows it
    passed = without_foreign_links(answer, known)
    for seen in (MarkdownIt("commonmark", {"html": True}).render(passed), passed):
        assert ways_out(seen) == [], (answer, passed)
        assert LexborHTMLParser(seen).css("img[src]") == [], (
            answer,
            passed,
        )  # none loads, not even relative ones


@given(
    length=st.integers(0, 3_000),
    opening=st.sampled_from(["![x](https://", "<a x='", "https://", "[r]: //", "<x:"]),
)
def test_withheld_link_text_is_bounded(length: int, opening: str) -> None:
    links = LinkFilter(known)
    links.feed(opening + "a" * length)
    assert len(links._held) <= 2_200


def ways_out(html: str) -> list[str]:
    """Return external addresses in attributes of HTML5 that are in no chunk."""
    found: list[str] = []
    for node in LexborHTMLParser(html).css("[src], [href], [srcset], [style], [action]"):
        for name, value in node.attributes.items():
            plain = re.sub(r"[\s\x00-\x20]", "", value or "").replace("\\", "/")
            if name not in LOADING or not LEADS_OUT.match(plain):
                continue
            if node.tag != "a" or not any(plain.rstrip("/") in text for text in PASSAGES):
                found.append(plain)
    return found
