"""Answers as JSON: stream their text while the object is incomplete, then read the other properties."""

import json
import logging
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from enum import Enum, auto
from typing import Any, Literal, TypeAlias
from urllib.parse import urldefrag

from vectorforge.patterns import pattern_of
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import StructuredAnswer
from vectorforge.types import RetrievedChunk

_FENCE = r"\s*(?:```[ \t]*\w*\s*)?"
_OPENING = pattern_of(_FENCE + r"\{")
_OPENING_SO_FAR = pattern_of(r"\s*(?:`{0,3}|```[ \t]*\w*\s*)")
"""Possible start of an object."""
_KEY = pattern_of(r'[\s,]*"((?:[^"\\]|\\.){0,200})"\s*:\s*(?=\S)', re.DOTALL)
_KEY_SO_FAR = pattern_of(r'[\s,]*(?:"(?:[^"\\]|\\.){0,200}\\?(?:"\s*(?::\s*)?)?)?', re.DOTALL)
_BETWEEN_TEXTS = pattern_of(r'["{}\[\],]|[^"{}\[\],]+')
_WITHIN_TEXT = pattern_of(r'"|(?:[^"\\]|\\.)+', re.DOTALL)
_PLAIN = pattern_of(r'[^"\\]+')
_UNICODE = pattern_of(r"\\u([0-9a-fA-F]{4})")
_UNICODE_SO_FAR = pattern_of(r"(?:\\(?:u[0-9a-fA-F]{0,3})?)?")
_AFTER_TEXT = pattern_of(r"\s*(\S)")
_ESCAPES = {
    '"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
}  # fmt: skip


class _At(Enum):
    START = auto()
    KEY = auto()
    OTHER_VALUE = auto()
    TEXT = auto()
    REST = auto()
    """The text is complete; the rest is ignored."""
    NO_JSON = auto()
    """Everything is text."""


class AnswerReader:
    r"""Reads the text property ``answer`` of a JSON object piece by piece.

    The pieces may be cut anywhere, within an escape too. Tolerated are a code fence around the object, line
    breaks and ``\d`` inside of texts, unescaped quotation marks, and a text instead of an object.
    https://www.rfc-editor.org/rfc/rfc8259
    """

    def __init__(self) -> None:
        self._at = _At.START
        self._pending = ""
        """Text received; read up to ``_next``."""
        self._next = 0
        self._written: list[str] = []
        self._texts: list[str] = []
        self._depth = 0
        """Brackets open within another property's value."""
        self._quoted = False
        """True within a text of that value."""

    @property
    def text(self) -> str:
        """Value of the property, as far as it is known."""
        return "".join(self._texts)

    def feed(self, piece: str) -> str:
        """Add a piece of the object; return what it adds to the text, often nothing."""
        self._written.append(piece)
        self._pending, self._next = self._pending[self._next :] + piece, 0
        known = len(self._texts)
        while self._step():
            pass
        return "".join(self._texts[known:])

    def finish(self) -> str:
        """End the object; return what that adds to the text.

        An object without the property is all text: the reader gets what the model wrote.
        """
        if self._at is _At.REST or self._texts:
            return ""
        self._at = _At.REST
        self._texts = ["".join(self._written)]
        return self._texts[0]

    def object(self) -> Mapping[str, Any] | None:
        """Return all properties; None if the text is not a complete JSON object."""
        written = "".join(self._written)
        opening = _OPENING.match(written)
        if opening is None:
            return None
        try:
            found, _ = json.JSONDecoder(strict=False).raw_decode(written, opening.end() - 1)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def _step(self) -> bool:
        """Read the next part; return False if more text is needed."""
        match self._at:
            case _At.START:
                return self._read_start()
            case _At.KEY:
                return self._read_key()
            case _At.OTHER_VALUE:
                return self._skip_value()
            case _At.TEXT:
                return self._read_text()
            case _At.REST:
                self._next = len(self._pending)
            case _At.NO_JSON:
                if rest := self._pending[self._next :]:
                    self._emit(rest, len(rest))
        return False

    def _read_start(self) -> bool:
        if opening := _OPENING.match(self._pending):
            return self._go(_At.KEY, opening.end())
        if not self._pending.strip():  # blanks before the object are read once
            self._next = len(self._pending)
            return False
        return not _OPENING_SO_FAR.fullmatch(self._pending) and self._give_up()

    def _read_key(self) -> bool:
        key = _KEY.match(self._pending, self._next)
        if key is None:
            return not _KEY_SO_FAR.fullmatch(self._pending, self._next) and self._give_up()
        if self._pending[key.end()] == '"' and _unescaped(key[1]) == "answer":
            return self._go(_At.TEXT, key.end() + 1)
        return self._go(_At.OTHER_VALUE, key.end())

    def _give_up(self) -> bool:
        """Treat everything as text: it is not JSON, or lacks the property."""
        self._pending = "".join(self._written)
        return self._go(_At.NO_JSON, 0)

    def _skip_value(self) -> bool:
        while token := (_WITHIN_TEXT if self._quoted else _BETWEEN_TEXTS).match(self._pending, self._next):
            self._next = token.end()
            if token[0] == '"':
                self._quoted = not self._quoted
            elif not self._quoted and self._depth == 0 and token[0] in ",}":
                return self._go(_At.KEY, token.end()) if token[0] == "," else self._give_up()
            elif not self._quoted:
                self._depth += (token[0] in "{[") - (token[0] in "}]")
        return False

    def _read_text(self) -> bool:
        if plain := _PLAIN.match(self._pending, self._next):
            return self._emit(plain[0], len(plain[0]))
        if self._pending.startswith('"', self._next):
            return self._read_quotation_mark()
        return self._read_escape()

    def _read_quotation_mark(self) -> bool:
        following = _AFTER_TEXT.match(self._pending, self._next + 1)
        if following is None:
            return False
        if following[1] in ",}":
            return self._go(_At.REST, self._next + 1)
        return self._emit('"', 1)  # the text continues: the model did not escape the mark

    def _read_escape(self) -> bool:
        escaped = self._pending[self._next + 1 : self._next + 2]
        if escaped == "u":
            return self._read_unicode_escape()
        return bool(escaped) and self._emit(_ESCAPES.get(escaped, "\\" + escaped), 2)

    def _read_unicode_escape(self) -> bool:
        first = _UNICODE.match(self._pending, self._next)
        if first is None:
            so_far = _UNICODE_SO_FAR.fullmatch(self._pending, self._next)
            return not so_far and self._emit("\\u", 2)
        code = int(first[1], 16)
        if not 0xD800 <= code < 0xDC00:
            return self._emit(_character(code), 6)
        after = self._next + 6
        second = _UNICODE.match(self._pending, after)
        if second is None and _UNICODE_SO_FAR.fullmatch(self._pending, after):
            return False
        if second and 0xDC00 <= (low := int(second[1], 16)) < 0xE000:
            return self._emit(chr(0x10000 + ((code - 0xD800) << 10) + low - 0xDC00), 12)
        return self._emit(_character(code), 6)

    def _emit(self, text: str, read: int) -> bool:
        self._texts.append(text)
        self._next += read
        return True

    def _go(self, place: _At, offset: int) -> bool:
        self._at, self._next = place, offset
        return True


def _unescaped(key: str) -> str | None:
    try:
        return str(json.loads(f'"{key}"', strict=False))
    except ValueError:
        return None


def _character(code: int) -> str:
    """Return the character; half of a surrogate pair, which cannot be sent, is replaced."""
    return "\N{REPLACEMENT CHARACTER}" if 0xD800 <= code < 0xE000 else chr(code)


logger = logging.getLogger(__name__)

_Confidence: TypeAlias = Literal["high", "medium", "low"]
_CONFIDENCES: Mapping[str, _Confidence] = {"high": "high", "medium": "medium", "low": "low"}


async def read_answer(
    run: QueryRun, texts: AsyncGenerator[str, None], clean: Callable[[str], str]
) -> AsyncGenerator[str, None]:
    """Yield the answer's text from a model's JSON; set ``run.structured``.

    Args:
        run: Its preset has a response schema.
        texts: Output of the model; closed with this generator.
        clean: Removes from the examples what is removed from the answer.
    """
    async with aclosing(texts):
        reader = AnswerReader()
        run.structured = StructuredAnswer()  # if the answer breaks off
        async for text in texts:
            if readable := reader.feed(text):
                yield readable
        if readable := reader.finish():
            yield readable
        structured = structured_answer(reader.object(), run.used)
        run.structured = replace(structured, examples=tuple(map(clean, structured.examples)))


def structured_answer(
    properties: Mapping[str, Any] | None, used: Sequence[RetrievedChunk]
) -> StructuredAnswer:
    """Return the valid further properties of a model's answer.

    Args:
        properties: JSON object of the model; missing ones get defaults; None: all do.
        used: Chunks in the prompt: other sources are dropped.
    """
    if properties is None:
        logger.error("The model's answer is not a JSON object; it is treated as text.")
        return StructuredAnswer()
    named = list(_texts(properties.get("sources"), "url"))
    # The best chunk's spelling has priority.
    known = {_normalised(chunk.document_source): chunk.document_source for chunk in reversed(used)}
    confidence = properties.get("confidence")
    found = [known.get(_normalised(url)) for url in named]
    return StructuredAnswer(
        examples=tuple(_texts(properties.get("examples"), "code")),
        source_urls=tuple(dict.fromkeys(url for url in found if url is not None)),
        dropped_source_urls=found.count(None),
        confidence=_CONFIDENCES.get(str(confidence).strip().lower(), "low"),
    )


def _normalised(url: str) -> str:
    """Return a source without what models add or omit: brackets, a fragment, a final slash."""
    return urldefrag(url.strip().strip("<>")).url.rstrip("/")


def _texts(value: Any, key: str) -> Iterator[str]:
    """Yield the texts of a list whose items are texts, or objects with a text under ``key``."""
    for item in value if isinstance(value, list) else [value]:
        text = item.get(key, item) if isinstance(item, dict) else item
        if isinstance(text, str) and text:
            yield text
        elif text:
            yield json.dumps(text, ensure_ascii=False)
