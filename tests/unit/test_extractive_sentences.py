"""Sentences, lines and word stems that the extractive provider selects from."""

import pytest

from tests.support.rag.chunks import make_chunk
from tests.unit.extractive_answers import RHINE, answer
from vectorforge.llm.providers.quotations import split
from vectorforge.llm.providers.words import all_terms, stem, terms
from vectorforge.pipeline.citations.check import CitationChecker

# --- cutting


def pieces(text: str) -> list[str]:
    cut = split(text)
    for piece in cut:
        assert text[piece.start : piece.end].strip()
        assert piece.text == piece.text.strip()
    return [piece.text for piece in cut]


def test_sentences_are_split_at_their_end() -> None:
    text = 'Mr. Bean paid 3.50 in the U.S. market, e.g. for tea. "Why?" he asked. Nobody knew!\nThe end came.'
    assert pieces(text) == [
        "Mr. Bean paid 3.50 in the U.S. market, e.g. for tea.",
        '"Why?" he asked.',
        "Nobody knew!",
        "The end came.",
    ]


def test_heading_at_the_start_of_a_paragraph_belongs_to_its_first_sentence() -> None:
    assert pieces("**Methods.** We asked 84 people. **Limitations.** Few took part.") == [
        "Methods. We asked 84 people.",
        "Limitations. Few took part.",
    ]


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("It rained.[12] Then it stopped.[3][4]", ["It rained.", "Then it stopped."]),
        (
            "The plant is toxic[1] to dogs,[2] as a study shows.",
            ["The plant is toxic to dogs, as a study shows."],
        ),
        ("ปลูกในที่แห้งจะผลัดใบ แต่ไม่พร้อมกันทั้งต้น[1] มีชื่ออื่น", ["ปลูกในที่แห้งจะผลัดใบ แต่ไม่พร้อมกันทั้งต้น มีชื่ออื่น"]),
        ("It copies argv[1] to argv[2].", []),
        ("It counts items[0] and rows[1].", []),
    ],
)
def test_footnote_marks_are_excluded_from_quotation(text: str, quoted: list[str]) -> None:
    assert pieces(text) == quoted


def test_markdown_headings_and_rules_are_not_quoted() -> None:
    text = "# Install\n\nUnderlined\n---\n\nRun the tool.\n\n---\n\n- first item\n- second item\n  goes on\n"
    assert pieces(text) == ["Run the tool.", "first item", "second item goes on"]
    assert split(text)[0].before.strip() == "Underlined"


def test_plain_titles_are_not_quoted() -> None:
    assert pieces("Get started\n\nIf you are new, start here.") == ["If you are new, start here."]
    thai = "แล็ปท็อปจะถูกเปลี่ยนทุกสี่ปีเพราะการรับประกันสิ้นสุดลง"  # a sentence without a full stop
    assert pieces(f"การยืม\n\n{thai}\n\nกล้อง") == [thai, "กล้อง"]


def test_code_blocks_and_table_rows_stay_whole() -> None:
    text = "Use it:\n\n```python\nx = 1. \nY = 2\n```\n\n    make run\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    code = ["```python\nx = 1. \nY = 2\n```", "```\nmake run\n```"]
    assert pieces(text) == ["Use it:", *code, "a: 1; b: 2"]


@pytest.mark.parametrize(
    ("row", "quoted"),
    [
        ("| `half` | **4,000** dimensions |", "kind: half; limit: 4,000 dimensions"),
        ("| a \\| b | |", "kind: a | b"),
        ("| [x](y.md) | one | two |", "x; one; two"),  # more cells than columns
        ("| half |", "kind: half"),
    ],
)
def test_row_is_quoted_with_the_names_of_its_columns(row: str, quoted: str) -> None:
    assert pieces(f"Kinds.\n\n| kind | limit |\n| --- | :-: |\n{row}\n") == ["Kinds.", quoted]


def test_rows_of_other_files_are_quoted_without_pipes() -> None:
    assert pieces("Vienna | 180 | Bert\n\nname: Ann; phone: 1") == [
        "Vienna; 180; Bert",
        "name: Ann; phone: 1",
    ]


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("    cat a.txt | sort", "```\ncat a.txt | sort\n```"),
        ("Run `cat a.txt | sort` first.", "Run `cat a.txt | sort` first."),
        ("- Choose File | Save as.", "Choose File | Save as."),
        ("1. Weigh: 5 g; stir: once.", "1. Weigh: 5 g; stir: once."),
        ("`low` | below", "low; below"),
    ],
)
def test_pipes_of_commands_and_items_are_quoted(text: str, quoted: str) -> None:
    (piece,) = split(text)
    assert piece.text == quoted
    assert (piece.kind == "row") == text.startswith("`low`")


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        (
            "It is **bold**, *thin* and _new_: [a link](b.md#c) ![image](i.png).",
            "It is bold, thin and new: a link .",
        ),
        ("Set `TOP_K` to `*` or \\*, 2*3*4.", "Set TOP_K to `*` or *, 2*3*4."),
        ("<!-- costs: starts\n-->\nIt costs <b>nothing</b>.", "It costs nothing."),
        ("> Quoted\n> twice.", "Quoted twice."),
        ("Caf&eacute;&nbsp;&amp; &lt;b&gt;", "Café &amp; &lt;b&gt;"),
        ("- [x] **Done**: all", "Done: all"),
        ("Unclosed <!-- comment", "Unclosed <!-- comment"),
        ("Read [a guide][setup] or [a *manual*][1], not m[i][j].", "Read a guide or a manual, not m[i][j]."),
        ("> [!NOTE]\n> Restart it.", "Restart it."),
        ("It costs ~~10~~ 12 euros.", "It costs 12 euros."),
        (
            "Write to <help@a.example> or <https://a.example>.",
            "Write to help@a.example or https://a.example.",
        ),
        ("<summary><u>More</u></summary>\nIt ends.", "More It ends."),
    ],
)
def test_markup_is_not_quoted(text: str, quoted: str) -> None:
    assert pieces(text) == [quoted]


def test_lists_and_tables_belong_to_their_lead_in() -> None:
    text = "Do this:\n\n1. Open it.\n   Wait.\n2. Close it.\n\nDone.\n\n- one\n- two\n"
    cut = split(text)
    assert [(piece.text, piece.kind) for piece in cut] == [
        ("Do this:", "prose"),
        ("1. Open it.", "step"),
        ("Wait.", "step"),
        ("2. Close it.", "step"),
        ("Done.", "prose"),
        ("one", "item"),
        ("two", "item"),
    ]
    assert [piece.part - cut[0].part for piece in cut] == [0, 0, 0, 0, 1, 2, 2]
    assert "Do this:" in cut[3].before


@pytest.mark.parametrize("markers", ["a) b)", "(i) (ii)", "▪ ▪", "> - > -"])
def test_items_with_other_markers_belong_to_their_lead_in(markers: str) -> None:
    half = len(markers) // 2
    first, second = markers[:half].strip(), markers[half:].strip()
    lead, *items = split(f"> Bring:\n{first} Pens\n{second} Paper\n")
    assert [piece.kind in ("item", "step") for piece in items] == [True, True]
    assert {piece.part for piece in items} == {lead.part}


def test_list_that_continues_a_sentence_belongs_to_it() -> None:
    lead, *items = split("Before you leave, please\n\n* return the keys,\n* hand over the tasks.\n")
    assert (lead.text, lead.is_fragment) == ("Before you leave, please", False)
    assert [(piece.text, piece.part) for piece in items] == [
        ("return the keys,", lead.part),
        ("hand over the tasks.", lead.part),
    ]


def test_title_of_a_list_is_not_quoted() -> None:
    assert pieces("What to bring\n\n* Pens\n* Paper\n") == ["Pens", "Paper"]


def test_paragraphs_of_a_quoted_mail_are_separate() -> None:
    assert pieces("> Hi Ann,\n>\n> the bus leaves at 7.\n") == ["Hi Ann,", "the bus leaves at 7."]


def test_lines_of_fields_are_separate() -> None:
    text = (
        "**Date:** 2026-08-19\n**Duration**: 47 minutes\nin all\nDue by: Ann\n\nNote: it ended and\nso: no."
    )
    assert pieces(text) == [
        "Date: 2026-08-19",
        "Duration: 47 minutes in all",
        "Due by: Ann",
        "Note: it ended and so: no.",
    ]


def test_source_code_keeps_its_lines_and_its_comments_are_sentences() -> None:
    text = 'def call(send):\n    """Call it. Retry 429."""\n    for one in range(5):\n        send()\n'
    assert [(piece.text, piece.kind) for piece in split(text)] == [
        ('```\ndef call(send):\n    """Call it.\n```', "code"),
        ('Retry 429."""', "prose"),
        ("```\nfor one in range(5):\n    send()\n```", "code"),
    ]
    data = "services:\n  web:\n    image: nginx"
    assert pieces(data) == [f"```\n{data}\n```"]


def test_long_code_is_split_by_line_and_long_sentence_at_word() -> None:
    code = "```\n" + "call_function(argument)\n" * 40 + "```"
    assert set(pieces(code)) == {"call_function(argument)"}
    (piece,) = pieces("word " * 400)
    assert len(piece) <= 500
    assert piece.endswith("word")


def test_unclosed_fence_ends_with_chunk() -> None:
    assert pieces("```\nx = 1\n\ny = 2") == ["```\nx = 1\n\ny = 2\n```"]


@pytest.mark.parametrize(
    "part",
    [
        " ",
        "\n",
        ". ",
        "|",
        "| |",
        "[1",
        "[1]",
        "a\n\n",
        "- ",
        "1. ",
        "```\n",
        "#",
        "。",
        "A.",
        '"',
        "é ",
        "\r\n",
    ],
)
def test_repetitive_text_yields_bounded_pieces(part: str) -> None:
    repeated = part * (10_000 // len(part))
    for text in (repeated, f"It is.{repeated}x", f"x{repeated}"):
        assert all(0 < len(piece) <= 500 for piece in pieces(text))


# --- words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("measured", "measure"),
        ("measuring", "measures"),
        ("running", "runs"),
        ("studies", "study"),
        ("studied", "study"),
        ("creation", "created"),
        ("payments", "payment"),
        ("invoices", "invoice"),
        ("машинами", "машины"),
        ("θάλασσες", "θαλασσα"),
        ("المدرسة", "مدرسة"),
    ],
)
def test_inflected_forms_share_a_stem(one: str, other: str) -> None:
    assert stem(one) == stem(other)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What is the length of it?", {"length"}),
        ("Wie viele Tage sind es bis zum Fest?", {"viel", "tag", "bis", "fest"}),
        ("睡觉的猫", {"睡觉", "觉的", "的猫"}),
        ("猫是谁", {"猫是"}),
        ("错误E05在2024年", {"错误", "e05", "在", "2024", "年"}),
        ("Große İzmir", {"gross", "izmir"}),
    ],
)
def test_stop_words_are_excluded_from_terms(text: str, expected: set[str]) -> None:
    assert terms(text) == expected


def test_identifiers_and_numbers_also_count_as_a_whole() -> None:
    found = all_terms("Set VECTORFORGE_TOP_K to 1.5, as in $eq and max_len.")
    assert found == {"set", "vectorforge_top_k", "1", "5", "1.5", "eq", "$eq", "max", "len", "max_len"}


async def test_code_that_the_end_of_its_chunk_cuts_is_closed_and_cited() -> None:
    text = "Run it:\n\n```sh\nmake run"
    assert pieces(text) == ["Run it:", "```sh\nmake run\n```"]
    assert pieces(f"{RHINE}\n```") == pieces(RHINE)
    checker = CitationChecker("make run", [make_chunk(text)])
    checker.feed(await answer("make run", text))
    checker.finish()
    assert {citation.source_number for citation in checker.citations} == {1}
