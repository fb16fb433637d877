"""Sentences, lines and word stems that the extractive provider selects from."""

import pytest

from vectorforge.llm.providers.quotations import split, stem, terms

# --- cutting


def pieces(text: str) -> list[str]:
    cut = split(text)
    for piece in cut:
        assert text[piece.start : piece.end] == piece.text == piece.text.strip()
    return [piece.text for piece in cut]


def test_sentences_are_split_at_their_end() -> None:
    text = 'Mr. Bean paid 3.50 in the U.S. market, e.g. for tea. "Why?" he asked. Nobody knew!\nThe end came.'
    assert pieces(text) == [
        "Mr. Bean paid 3.50 in the U.S. market, e.g. for tea.",
        '"Why?" he asked.',
        "Nobody knew!",
        "The end came.",
    ]


def test_footnote_marks_are_excluded_from_quotation() -> None:
    assert pieces("It rained.[12] Then it stopped.[3][4]") == ["It rained.", "Then it stopped."]


def test_chinese_sentences_are_split() -> None:
    assert pieces("猫在睡觉。狗在跑！") == ["猫在睡觉。", "狗在跑！"]


def test_markdown_headings_and_rules_are_not_quoted() -> None:
    text = "# Install\n\nUnderlined\n---\n\nRun the tool.\n\n---\n\n- first item\n- second item\n  goes on\n"
    assert pieces(text) == ["Run the tool.", "- first item", "- second item\n  goes on"]
    assert split(text)[0].before.strip() == "Underlined"


def test_plain_titles_are_not_quoted() -> None:
    assert pieces("Get started\n\nIf you are new, start here.") == ["If you are new, start here."]


def test_code_blocks_and_table_rows_stay_whole() -> None:
    text = "Use it:\n\n```python\nx = 1. \nY = 2\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    assert pieces(text) == ["Use it:", "```python\nx = 1. \nY = 2\n```", "| a | b |", "| 1 | 2 |"]


def test_long_code_is_split_by_line_and_long_sentence_at_word() -> None:
    code = "```\n" + "call_function(argument)\n" * 40 + "```"
    assert set(pieces(code)) == {"call_function(argument)"}
    (piece,) = pieces("word " * 400)
    assert len(piece) <= 500
    assert piece.endswith("word")


def test_unclosed_fence_ends_with_chunk() -> None:
    assert pieces("```\nx = 1\n\ny = 2") == ["```\nx = 1\n\ny = 2"]


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
    ],
)
def test_inflected_forms_share_a_stem(one: str, other: str) -> None:
    assert stem(one) == stem(other)


def test_stop_words_are_excluded_from_terms() -> None:
    assert terms("What is the length of it?") == {"length"}
    assert terms("睡觉的猫") == {"睡觉", "觉的", "的猫"}
