"""The reader of RTF: footnotes, comments, hidden text and text boxes."""

from tests.support.documents import one


def test_footnotes_follow_their_paragraph_or_table() -> None:
    rtf = rb"""{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}{\header Head{\footnote Unread.}}
        {\pard Open\u8217?{\footnote \pard{\super\chftn} Since \'fcber \{1961\}.} daily.\par}
        {\pard Free \u-10179?\u-8704?.\par}
        \trowd\cellx1\cellx2 A{\*\footnote In a cell.}\cell B\cell\row \pard
        {\pard End{\footnote\ftnalt An endnote.}.\par}}"""
    lines = [line.strip() for line in one(rtf, "a.rtf").text.split("\n\n")]
    assert lines == [
        "Open\u2019 daily.",
        "Since \u00fcber {1961}.",
        "Free \U0001f600.",
        "A | B",
        "In a cell.",
        "End.",
        "An endnote.",
    ]


def test_hidden_and_deleted_text_is_left_out() -> None:
    rtf = rb"{\rtf1\ansi{\pard Pay {\b\v secret }{\v0 5 }{\f0 \deleted gone }{\viewkind4 euros}.\par}}"
    assert one(rtf, "a.rtf").text == "Pay 5 euros."


def test_text_boxes_follow_their_paragraph() -> None:
    box = r"{\shp{\*\shpinst\shpleft9{\sp{\sn shapeType}{\sv 202}}{\shptxt \pard %s {\b now}.\par}}%s}"
    old = r"{\shprslt{\*\do\dptxbx{\dptxbxtext Again.}}}"
    picture = r"{\shp{\*\shpinst{\sp{\sn pib}{\sv 1}}}}"
    rtf = r"{\rtf1\ansi{\pard Before" + picture + box % ("Call us", old) + r".\par}{\pard After.\par}}"
    lines = [line.strip() for line in one(rtf.encode(), "a.rtf").text.split("\n\n")]
    assert lines == ["Before.", "Call us now.", "After."]


def test_comments_follow_their_paragraph_or_table() -> None:
    of_word = (
        r"{\cs15\v\fs16 {\*\atnid AB}{\*\atnauthor J\'e9r\u244?me\~B.}\chatn {\*\annotation{\*\atnref 0}"
    )
    of_word += r"{\*\atndate 1}\pard\plain{\cs15\v\chatn }{\v secret }Since {\b when}?\par Ask.}}"
    unsigned = r"{\*\atnid CD}\chatn{\*\annotation Check.}"
    rtf = rf"{{\rtf1\ansi\ansicpg1252{{\pard Open{of_word} daily{{\footnote In May.}}.\par}}"
    rtf += rf"\trowd\cellx1\cellx2 A{unsigned}\cell B\cell\row\pard{{\pard End.\par}}}}"
    assert [line.strip() for line in one(rtf.encode(), "a.rtf").text.split("\n\n")] == [
        "Open daily.",
        "Comment: Since when? Ask.",
        "In May.",
        "A | B",
        "Comment: Check.",
        "End.",
    ]


def test_comment_on_hidden_text_is_left_out() -> None:
    rtf = rb"{\rtf1{\pard Pay {\v secret {\*\atnauthor A}\chatn{\*\annotation Check.}}5 euros.\par}}"
    assert one(rtf, "a.rtf").text == "Pay 5 euros."


def test_empty_comment_is_left_out() -> None:
    rtf = rb"{\rtf1{\pard Pay {\*\atnid A}\chatn{\*\annotation\pard\plain{\chatn }\par}5 euros.\par}}"
    assert one(rtf, "a.rtf").text == "Pay 5 euros."
