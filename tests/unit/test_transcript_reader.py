"""The reader of transcripts: WebVTT and SubRip."""

import pytest

from tests.support.documents import one, reason
from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract import extract, media

MEETING = """WEBVTT - Weekly meeting

STYLE
::cue { color: red }

NOTE
recorded in room 4 --
by Bo

intro
00:01.000 --> 00:04.500 align:start position:0%
<v.loud Ann Berg>Welcome to the <i>weekly</i> meeting of</v>

c7b1/12-0
00:04.500 --> 00:06.000
<v Ann Berg>R&amp;D.</v>

1:02:03.000 --> 1:02:05.000
<v Ann Berg>Who has questions?</v>
<v Bo>I have <00:00:05.000><c.yellow>one</c>.</v>

NOTE not spoken

1:02:06.000 --> 1:02:07.000
Two, in fact.
"""


def test_cues_of_a_speaker_are_a_paragraph_with_its_time() -> None:
    document = one(MEETING.encode(), "a.vtt")
    assert document.text.split("\n\n") == [
        "[00:00:01] Ann Berg: Welcome to the weekly meeting of R&D. Who has questions?",
        "[01:02:03] Bo: I have one. Two, in fact.",
    ]
    assert document.media_type == media.VTT


def test_subtitles_are_read_without_numbers_and_markup() -> None:
    srt = '1\r\n00:00:01,000 --> 00:00:02,000\r\n{\\an8}<font color="red">If 3 < 4</font>\r\nthen\r\n\r\n'
    srt += "2\r\n00:00:03,000 --> 00:00:04,000\r\n1984\r\n\r\nwas right.\r\n"
    srt += "3\r\n00:00:05,000 --> 00:00:06,000\r\nAnn: Yes.\r\n"
    srt += "4\r\n00:00:06,000 --> 00:00:07,000\r\nAnn: No."
    expected = "[00:00:01] If 3 < 4 then 1984 was right.\n\n[00:00:05] Ann: Yes. No."
    assert one(srt.encode(), "a.srt").text == expected
    assert one(srt.encode("utf-16"), "a", "application/x-subrip").text == expected


def test_long_speech_is_cut_at_sentences() -> None:
    cues = (
        f"{n // 60:02}:{n % 60:02}.000 --> 59:59.000\nThe station number {n}\nis closed on Mondays.\n\n"
        for n in range(100)
    )
    text = one(("WEBVTT\n\n" + "".join(cues)).encode(), "a.vtt").text
    paragraphs = text.split("\n\n")
    assert all(300 < len(one) < 500 for one in paragraphs[:-1])
    assert all(one.startswith("[00:0") and one.endswith("Mondays.") for one in paragraphs)
    assert text.count("closed") == 100


def test_speech_without_punctuation_is_cut_in_paragraphs_of_a_chunk() -> None:
    cues = (f"00:{n:02}.000 --> 00:59.000\nword{n} and so on and on\n\n" for n in range(60))
    paragraphs = one("".join(cues).encode(), "a.vtt").text.split("\n\n")
    assert [len(one) < 800 for one in paragraphs] == [True] * 2


def test_lines_of_rolling_captions_are_read_once() -> None:
    vtt = """WEBVTT
Kind: captions

00:00.000 --> 00:02.000
 
so<00:00:00.500><c> this</c><00:00:01.000><c> is</c>

00:02.000 --> 00:02.010
so this is
 

00:02.010 --> 00:04.000
so this is
the<00:00:02.500><c> plan</c>
"""  # noqa: W293 - as YouTube writes it
    assert one(vtt.encode(), "a.vtt").text == "[00:00:00] so this is the plan"


def test_transcript_without_times_is_rejected_with_advice() -> None:
    with pytest.raises(ExtractionError, match=r"name the file \.txt"):
        extract(b"WEBVTT\n\nJust text.", source="a.vtt")
    assert reason(b"Just text.", "a.srt") == "unreadable"
