"""Reads the answer out of a JSON object while the object is still being written.

Answers as JSON: the readable text of them while they come in, and at the end what else they say.
"""

import json
import logging
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from enum import Enum, auto
from typing import Any, Literal, TypeAlias
from urllib.parse import urldefrag

from vectorforge.llm.types import ProviderCapability
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import StructuredAnswer
from vectorforge.types import RetrievedChunk

_FENCE = r"\s*(?:```[ \t]*\w*\s*)?"
_OPENING = re.compile(_FENCE + r"\{")
_OPENING_SO_FAR = re.compile(r"\s*(?:`{0,3}|```[ \t]*\w*\s*)")
"""What may still become the start of an object."""
_KEY = re.compile(r'[\s,]*"((?:[^"\\]|\\.){0,200})"\s*:\s*(?=\S)', re.DOTALL)
_KEY_SO_FAR = re.compile(r'[\s,]*(?:"(?:[^"\\]|\\.){0,200}\\?(?:"\s*(?::\s*)?)?)?', re.DOTALL)
_BETWEEN_TEXTS = re.compile(r'["{}\[\],]|[^"{}\[\],]+')
_WITHIN_TEXT = re.compile(r'"|(?:[^"\\]|\\.)+', re.DOTALL)
_PLAIN = re.compile(r'[^"\\]+')
_UNICODE = re.compile(r"\\u([0-9a-fA-F]{4})")
_UNICODE_SO_FAR = re.compile(r"(?:\\(?:u[0-9a-fA-F]{0,3})?)?")
_AFTER_TEXT = re.compile(r"\s*(\S)")
_ESCAPES = {
    '"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
}  # fmt: skip


class _At(Enum):
    START = auto()
    KEY = auto()
    OTHER_VALUE = auto()
    TEXT = auto()
    REST = auto()
    """The text is complete; nothing after it is for the reader."""
    NO_JSON = auto()
    """Everything is text."""


class AnswerReader:
    r"""Finds one text property of a JSON object (https://www.rfc-editor.org/rfc/rfc8259) piece by piece.

    The pieces may be cut anywhere, within an escape too. What is not JSON is forgiven where a reader still
    sees what was meant: a code fence around the object, line breaks and ``\d`` inside of texts, quotation
    marks that nobody escaped, and a text instead of an object.

    Args:
        key: The property, wherever it stands at the top level.
    """

    def __init__(self, key: str = "answer") -> None:
        self._key = key
        self._at = _At.START
        self._pending = ""
        """Written; read up to ``_next``."""
        self._next = 0
        self._written: list[str] = []
        self._texts: list[str] = []
        self._depth = 0
        """Brackets open within another property's value."""
        self._quoted = False
        """Whether the reader is within a text of that value."""

    @property
    def text(self) -> str:
        """The property's value, as far as it is known."""
        return "".join(self._texts)

    def feed(self, piece: str) -> str:
        """Take the next piece of the object; returns what it adds to the text, often nothing."""
        self._written.append(piece)
        self._pending, self._next = self._pending[self._next :] + piece, 0
        known = len(self._texts)
        while self._step():
            pass
        return "".join(self._texts[known:])

    def finish(self) -> str:
        """Say that all is written; returns what that adds to the text.

        An object without the property is all text: whoever reads gets what the model wrote.
        """
        if self._at is _At.REST or self._texts:
            return ""
        self._at = _At.REST
        self._texts = ["".join(self._written)]
        return self._texts[0]

    def object(self) -> Mapping[str, Any] | None:
        """All properties; None when what was written is no complete JSON object."""
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
        """Read on; False when more has to be written first."""
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
        if not self._pending.strip():  # blanks before the object: not looked through again for each piece
            self._next = len(self._pending)
            return False
        return not _OPENING_SO_FAR.fullmatch(self._pending) and self._give_up()

    def _read_key(self) -> bool:
        key = _KEY.match(self._pending, self._next)
        if key is None:
            return not _KEY_SO_FAR.fullmatch(self._pending, self._next) and self._give_up()
        if self._pending[key.end()] == '"' and _unescaped(key[1]) == self._key:
            return self._go(_At.TEXT, key.end() + 1)
        return self._go(_At.OTHER_VALUE, key.end())

    def _give_up(self) -> bool:
        """No JSON, or none with this property: all that was written becomes the text."""
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
        return self._emit('"', 1)  # the text goes on: the model forgot to escape it

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
    """The character; half of a pair is none, and could not be sent."""
    return "\N{REPLACEMENT CHARACTER}" if 0xD800 <= code < 0xE000 else chr(code)


logger = logging.getLogger(__name__)

Confidence: TypeAlias = Literal["high", "medium", "low"]
_CONFIDENCES: Mapping[Any, Confidence] = {"high": "high", "medium": "medium", "low": "low"}


async def read_answer(run: QueryRun, texts: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """The answer's pieces for a reader; sets ``run.structured`` when the door asks for JSON.

    Args:
        run: Whose preset asks the model for JSON.
        texts: What the model writes; closed with this generator.
    """
    async with aclosing(texts):
        if _quotes(run):
            async for text in texts:
                yield text
            return
        reader = AnswerReader()
        run.structured = StructuredAnswer()  # what can be said if the answer breaks off
        async for text in texts:
            if readable := reader.feed(text):
                yield readable
        if readable := reader.finish():
            yield readable
        run.structured = structured_answer(reader.object(), run.used)


def structured_answer(said: Mapping[str, Any] | None, used: Sequence[RetrievedChunk]) -> StructuredAnswer:
    """What a model said beside its answer, as far as it can be used.

    Args:
        said: Its JSON object; what is missing there gets the defaults; None, when it wrote none, all of them.
        used: The passages it was given: only their sources count as sources.
    """
    if said is None:
        logger.error("The model's answer is no JSON object; it is taken as text.")
        return StructuredAnswer()
    named = list(_texts(said.get("sources"), "url"))
    known = _known_sources(used)
    found = [known.get(_normalised(url)) for url in named]
    return StructuredAnswer(
        examples=tuple(_texts(said.get("examples"), "code")),
        source_urls=tuple(dict.fromkeys(url for url in found if url is not None)),
        dropped_source_urls=found.count(None),
        confidence=_confidence(said.get("confidence")),
    )


def _quotes(run: QueryRun) -> bool:
    """Whether the provider quotes the passages; then nobody reads the prompt that asks for JSON."""
    return run.provider is not None and ProviderCapability.EXTRACTIVE in run.provider.capabilities


def _known_sources(used: Sequence[RetrievedChunk]) -> dict[str, str]:
    """Sources by their normalised spelling; the best passage's spelling wins."""
    return {_normalised(chunk.document_source): chunk.document_source for chunk in reversed(used)}


def _normalised(url: str) -> str:
    """A source without what models add or lose: brackets around it, a fragment, a slash at its end."""
    return urldefrag(url.strip().strip("<>")).url.rstrip("/")


def _texts(value: Any, key: str) -> Iterator[str]:
    """The texts of a list whose items should be texts, but may be objects with one under ``key``."""
    for item in value if isinstance(value, list) else [value]:
        text = item.get(key, item) if isinstance(item, dict) else item
        if isinstance(text, str) and text:
            yield text
        elif text:
            yield json.dumps(text, ensure_ascii=False)


def _confidence(said: Any) -> Confidence:
    return _CONFIDENCES.get(said.strip().lower() if isinstance(said, str) else None, "low")
