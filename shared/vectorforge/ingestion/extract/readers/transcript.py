"""Transcripts (WebVTT, SubRip): speech as paragraphs that begin with their time."""

import html
import io
import re
from collections.abc import Iterator
from itertools import pairwise

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.blocks import Reading, paragraph
from vectorforge.ingestion.extract.decode import decode

_CUE = re.compile(r"(?:(\d{1,3}):)?(\d\d?):(\d\d)(?:[.,] ?\d{1,3})?\s*-->", re.ASCII)
_VOICE = re.compile(r"<v(?:\.[^\s<>]*+)?\s++([^<>]*+)>")
_MARKUP = re.compile(r"<(?:/?[a-zA-Z]|\d)[^<>]*>|\{\\[^{}]*\}")
_SPEAKER = re.compile(r"((?:[^\s:]+ ){0,4}[^\s:]+): ")


def read_transcript(content: bytes, *, charset: str | None = None) -> Reading:
    """Read what speakers say, each in paragraphs cut at a sentence after 400 characters, or after 700.

    Raises:
        ExtractionError: ``undecodable``, or ``unreadable``: there is no text with a time.
    """
    text, warnings = decode(content, charset)
    paragraphs = [*filter(None, _paragraphs(text))]
    if not paragraphs:
        raise ExtractionError("No text below a time; name the file .txt to store it as plain text.")
    return Reading(map(paragraph, paragraphs), warnings=warnings)


def _paragraphs(text: str) -> Iterator[str]:
    speaker, last, parts, size = "", "", list[str](), 0
    for time, line in _lines(text):
        if line == last:  # captions that roll up repeat it
            continue
        found = _SPEAKER.match(line)
        changes = found is not None and found[1] != speaker
        most = 400 if last.endswith((".", "?", "!", "…", "。", "？", "！")) else 700  # a chunk has 800
        if changes or size > most:
            yield " ".join(parts)
            parts, size = [], 0
        parts += [line[found.end() :] if found else line] if parts else [time, line]
        speaker, last, size = found[1] if found else speaker, line, size + len(line)
    yield " ".join(parts)


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield each line of a cue without markup, with the time of the cue."""
    time, before, is_note = "", "", False
    for line, following in pairwise(map(str.strip, io.StringIO(f"{text}\n\n", newline=None))):
        if found := _CUE.match(line):
            time, is_note = f"[{int(found[1] or 0):02}:{int(found[2]):02}:{found[3]}]", False
        elif not _CUE.match(following) or (before and not line.isdecimal()):  # otherwise the next cue's name
            is_note = is_note or (not before and line.partition(" ")[0] in ("NOTE", "STYLE", "REGION"))
            if time and not is_note:
                plain = html.unescape(_MARKUP.sub("", _VOICE.sub(r"\n\1: ", line)))
                yield from ((time, " ".join(one.split())) for one in plain.split("\n") if one.strip())
        before = line
