"""Addresses: which ones an answer may name, and what in a text leads out of the page that shows it."""

import re
from collections.abc import Callable, Iterable

_CONTROLS = re.compile(r"[\s\x00-\x20]+")
_SCHEME = re.compile(r"[a-z][a-z0-9+.\-]*:", re.IGNORECASE)
_GOES_ON = re.compile(r"[\w%&=+~@\-]|/[\w%&=+~@\-.]|[.:][\w/]|/[?#]")
"""What makes an address a longer one."""
_PUNCTUATION = ".,;:!?'\")]}>*_~`|\\/"
"""At an address's end it belongs to the sentence; a last slash says nothing either."""
_SOFT_STOP = re.compile(r"[\[\](){}\"'`|*,;!\\]")
_MOST_CUTS = 20
_MOST_PLACES = 200
_MOST_LOOKED_UP = 1_000


class AllowedAddresses:
    """The addresses that stand in some texts.

    Args:
        texts: Gives the passages with their sources, the question and whatever else the caller sent; asked
            for at the first address only, because most answers have none.
    """

    def __init__(self, texts: Callable[[], Iterable[str]]) -> None:
        self._texts = texts
        self._joined: str | None = None
        self._looked_up: dict[str, bool] = {}

    @property
    def _text(self) -> str:
        if self._joined is None:
            self._joined = "\n".join(self._texts())
        return self._joined

    def has(self, address: str) -> bool:
        """Whether the whole of a text is an address that stands in the texts; a last slash says nothing."""
        return self._is_known(address.removesuffix("/"))

    def _is_known(self, address: str) -> bool:
        """``_stands``; of an answer that repeats its addresses each is looked up once."""
        found = self._looked_up.get(address)
        if found is None:
            if len(self._looked_up) >= _MOST_LOOKED_UP:
                self._looked_up.clear()
            found = self._looked_up[address] = self._stands(address)
        return found

    def _stands(self, address: str) -> bool:
        """Whether the whole address stands in the texts; a part of one, or one with more behind it, does not.

        A fragment or query of the one in the texts may be missing; none may be added, for it could carry
        what was read elsewhere.
        """
        if not address:
            return False
        from html import unescape

        text = self._text
        for spelling in dict.fromkeys((address, unescape(address))):
            place, places = text.find(spelling), 0
            while place >= 0 and places < _MOST_PLACES:
                end = place + len(spelling)
                opens = place == 0 or not (text[place - 1].isalnum() or text[place - 1] in "-.@")
                if opens and not _GOES_ON.match(text, end):
                    return True
                place, places = text.find(spelling, place + 1), places + 1
        return False

    def known_start(self, run: str, prefix: str = "") -> str | None:
        """The longest part of a text without spaces, from its start, that is a known address.

        Args:
            run: Begins with an address; what follows it may belong to the sentence.
            prefix: Of the address, in front of the text.
        """
        cuts = [len(run), *(stop.start() for stop in _SOFT_STOP.finditer(run))][: _MOST_CUTS + 1]
        shortest = prefix + run[: min(cuts)].rstrip(_PUNCTUATION)
        if "&" not in shortest and shortest not in self._text:
            return None  # no longer part is there either
        for cut in sorted(cuts, reverse=True):
            part = run[:cut]
            length = len(part.rstrip(_PUNCTUATION))
            if self._is_known(prefix + part[:length]):
                return part[: length + part.startswith("/", length)]
        return None


def is_external(destination: str) -> bool:
    r"""Whether a link's destination leads out of the page that shows it, as browsers read it.

    They take ``\`` for ``/``, leave out white space, and have what HTML writes as entities decoded before.
    Source: https://url.spec.whatwg.org/#concept-basic-url-parser
    """
    from html import unescape

    plain = _CONTROLS.sub("", unescape(destination))
    if plain.replace("\\", "/").startswith("//"):
        return True
    plain = plain.replace("\\", "")  # Markdown's escapes
    return plain.startswith("//") or _SCHEME.match(plain) is not None


def without_punctuation(run: str) -> str:
    """A text without spaces, without what ends a sentence or closes a bracket behind an address."""
    return run.rstrip(_PUNCTUATION)
