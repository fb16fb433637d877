"""Reading the answer from incomplete JSON, wherever the pieces are cut."""

import codecs
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vectorforge.pipeline.structured import AnswerReader

ANSWER = 'Run `pip install "x"`\n\tthen C:\\dir \\d+ – für 100 € 😀\u2028 / {"answer": "no"} \x7f.'
BODY: dict[str, Any] = {
    "answer": ANSWER,
    "examples": ['print("a")', 'x = {"answer": 1}'],
    "sources": ["https://docs.example/a"],
    "confidence": "high",
}
WRITTEN = {
    "ascii": json.dumps(BODY),
    "utf-8": json.dumps(BODY, ensure_ascii=False, indent=1),
    "last": json.dumps({name: BODY[name] for name in reversed(BODY)}),
    "nested": json.dumps({"a": {"answer": "no", "b": ['}"]', {"c": [1, 2]}]}, "n": -1.5e3, **BODY}),
    "fenced": "```json\n" + json.dumps(BODY, indent=2) + "\n```\n",
    "slashes": json.dumps(BODY).replace("/", "\\/").replace("\\u2013", "\\u2013".upper().replace("U", "u")),
}


def read(pieces: list[str]) -> tuple[str, AnswerReader]:
    reader = AnswerReader()
    texts = [reader.feed(piece) for piece in pieces]
    return "".join([*texts, reader.finish()]), reader


def cut(data: bytes, *positions: int) -> list[str]:
    """Return the pieces seen by a client that decodes UTF-8 as the bytes arrive."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    bounds = [0, *positions, len(data)]
    return [decoder.decode(data[start:end]) for start, end in pairwise(bounds)]


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_answer_json_split_at_any_byte_yields_same_text(written: str) -> None:  # C09, D-026
    data = written.encode()
    for position in range(len(data) + 1):
        text, reader = read(cut(data, position))
        assert text == reader.text == ANSWER, position
        found = reader.object() or {}
        assert {name: found.get(name) for name in BODY} == BODY
    assert read(cut(data, *range(1, len(data))))[0] == ANSWER  # one byte at a time


def test_answer_text_is_emitted_while_json_arrives() -> None:  # C09
    reader = AnswerReader()
    assert reader.feed('{"confidence": "high", "ans') == ""
    assert reader.feed('wer": "One') == "One"
    assert reader.feed(" two\\") == " two"
    assert reader.feed("n\\ud83d\\ude0") == "\n"
    assert reader.feed('0 three"') == "😀 three"
    assert reader.feed(', "examples": ["x"') == ""
    assert reader.object() is None
    assert reader.feed("]}") == reader.finish() == ""
    assert reader.object() == {"confidence": "high", "answer": "One two\n😀 three", "examples": ["x"]}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=9), values, max_size=4),
    max_leaves=12,
)


@given(JSON, st.text(st.characters(exclude_categories=["Cs"])), st.booleans(), st.data())
def test_answer_reader_matches_full_json_parser(
    other: Any, answer: str, ascii_only: bool, data: st.DataObject
) -> None:  # C09
    written = json.dumps({"other": other, "answer": answer, "more": other}, ensure_ascii=ascii_only)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=8)))
    bounds = [0, *cuts, len(written)]
    text, reader = read([written[a:b] for a, b in pairwise(bounds)])
    assert text == answer
    assert reader.object() == json.loads(written)


@pytest.mark.parametrize(
    "written",
    [
        "The dough rises.",
        "```python\nprint()\n```",
        '{context} is a placeholder, "answer": "x"',
        '{"examples": [], "confidence": "high"}',
        '{"answer": ["a list"], "confidence": "low"}',
        '{"answer": 42}',
        "{}",
        '["answer", "x"]',
        "{",
        '{"answ',
        "`",
    ],
)
def test_non_json_answer_is_returned_as_text(written: str) -> None:  # D-028
    for position in range(len(written) + 1):
        assert read([written[:position], written[position:]])[0] == written
    assert read(list(written))[0] == written


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ('{"answer": "first\nsecond", "x": 1}', "first\nsecond"),  # an unescaped line break
        (r'{"answer": "\d+ \u12 \q"}', r"\d+ \u12 \q"),
        (r'{"answer": "a \ud83d b \ude00"}', "a \ufffd b \ufffd"),  # half characters
        (r'{"answer": "\ud83d\u0041"}', "\ufffdA"),
        ('{"answer": "say "hello" now", "x": 1}', 'say "hello" now'),
        ('{"answer": "cut off in the mid', "cut off in the mid"),
        ('{"answer": "cut off in an escape\\', "cut off in an escape"),
        ('{"answer": "one", "answer": "two"}', "one"),
        ('{"answer": ""}', ""),
        ('{"a\\u006eswer": "escaped key"}', "escaped key"),
        ('{"answer" : "spaced" }  trailing words', "spaced"),
    ],
)
def test_nearly_valid_json_answer_is_read(written: str, text: str) -> None:  # D-028
    for position in range(len(written) + 1):
        assert read([written[:position], written[position:]])[0] == text
    assert read(list(written))[0] == text


def test_long_answer_is_read_in_linear_time() -> None:
    line = 'a "quoted" line\n'
    text, _ = read(list(json.dumps({"examples": [line] * 2000, "answer": line * 5000})))
    assert text == line * 5000
