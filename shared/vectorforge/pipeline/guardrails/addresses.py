"""Addresses in texts: how links, images and tags are written, and which addresses an answer may name.

Each pattern decides by text that is complete where it ends: where the text is cut otherwise changes nothing.
"""

import re
from collections.abc import Callable, Iterable

from vectorforge.patterns import pattern_of

_CONTROLS = pattern_of(r"[\s\x00-\x20]+")
_SCHEME = pattern_of(r"[a-z][a-z0-9+.\-]*:", re.IGNORECASE)
_GOES_ON = pattern_of(r"[\w%&=+~@\-]|/[\w%&=+~@\-.]|[.:][\w/]|/[?#]")
"""Continuation of an address."""
_PUNCTUATION = ".,;:!?'\")]}>*_~`|\\/"
"""Characters that belong to the sentence at the end of an address; a final slash is ignored too."""
_SOFT_STOP = pattern_of(r"[\[\](){}\"'`|*,;!\\]")
_MOST_CUTS = 20
_MOST_PLACES = 200
_MOST_LOOKED_UP = 1_000
_MOST_PARTS = 16_000


class AllowedAddresses:
    """Addresses that occur in some texts.

    Args:
        texts: Returns the chunks with their sources and the texts of the request.
    """

    def __init__(self, texts: Callable[[], Iterable[str]]) -> None:
        self._text = "\n".join(texts())
        self._looked_up: dict[str, bool] = {}

    def has(self, address: str) -> bool:
        """Return True if the whole address occurs in the texts, with or without a final slash."""
        return self._is_known(address.removesuffix("/"))

    def _is_known(self, address: str) -> bool:
        """``_stands``, once for each repeated address."""
        found = self._looked_up.get(address)
        if found is None:
            if len(self._looked_up) >= _MOST_LOOKED_UP:
                self._looked_up.clear()
            found = self._looked_up[address] = self._stands(address)
        return found

    def _stands(self, address: str) -> bool:
        """Return True if the whole address occurs in the texts, not only a part of it or of a longer one.

        It may lack the fragment or query of the one in the texts, but not add one, which could carry data.
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
        """Return the longest start of a text without spaces that is a known address.

        Args:
            run: Text that begins with an address; the rest may belong to the sentence.
            prefix: Start of the address before the text.
        """
        cuts = [len(run), *(stop.start() for stop in _SOFT_STOP.finditer(run))][: _MOST_CUTS + 1]
        shortest = prefix + run[: min(cuts)].rstrip(_PUNCTUATION)
        if "&" not in shortest and shortest not in self._text:
            return None  # a longer part does not occur either
        for cut in sorted(cuts, reverse=True):
            part = run[:cut]
            length = len(part.rstrip(_PUNCTUATION))
            if self._is_known(prefix + part[:length]):
                return part[: length + part.startswith("/", length)]
        return None


def is_external(destination: str) -> bool:
    r"""Return True if a link's destination is on another site, as browsers read it.

    They treat ``\`` as ``/``, ignore white space, and decode HTML entities first.
    Source: https://url.spec.whatwg.org/#concept-basic-url-parser
    """
    from html import unescape

    plain = _CONTROLS.sub("", unescape(destination))
    if plain.replace("\\", "/").startswith("//"):
        return True
    plain = plain.replace("\\", "")  # Markdown's escapes
    return plain.startswith("//") or _SCHEME.match(plain) is not None


def without_punctuation(run: str) -> str:
    """Return a text without the punctuation and closing brackets after an address."""
    return run.rstrip(_PUNCTUATION)


TOP_LEVEL = "com|net|org|io|dev|app|ai|co|info|biz|xyz|ru|cn|de|uk|eu|fr|nl|ch|jp|br|ca|au|tv|cc|ws|top|site|online|store|cloud|gg"  # noqa: E501
BEGINNINGS = frozenset("h ht htt http https http: https: http:/ https:/ w ww www www.".split())  # noqa: SIM905 - as words
BLANK = pattern_of(r"[ \t\r]{0,100}\n?[ \t\r]{0,100}")
POINTED = pattern_of(r"<[^<>\n]*")
TITLE = pattern_of(r"""[ \t]*(?:"[^")\n]*"|'[^')\n]*')?[ \t]*\)""")
TITLE_DECIDED = pattern_of(r"[)\n]")
AUTOLINK = pattern_of(r"<([a-z][a-z0-9+.\-]{1,31}:[^\s<>]*)", re.IGNORECASE)
ANGLE_SO_FAR = pattern_of(r"<(?:[a-z][a-z0-9+.\-]{0,31})?", re.IGNORECASE)
TAG_NAME = pattern_of(r"<([a-z][a-z0-9\-]{0,30})(?=[\s/>])", re.IGNORECASE)
TAG_PART = pattern_of(r"""[\s/]+|[^\s/>=]+|=\s*(?:"[^"]*(?:"|\Z)|'[^']*(?:'|\Z)|[^\s>"'][^\s>]*)?""")
"""Part of a start tag after its name. https://html.spec.whatwg.org/multipage/parsing.html#before-attribute-name-state"""
SPACE_OR_BRACKET = pattern_of(r"[\s()]")
HARMLESS = pattern_of(r"[^a-z/\\&<>\x00-\x20]|[a-z][a-z0-9+.\-]*+[^a-z0-9+.\-:&\\\x00-\x20]", re.IGNORECASE)
"""Start of a destination without a scheme and ``//``, as browsers read it."""
_HARMLESS_READ = pattern_of(
    r"[^a-z/\\<>\x00-\x20]|[a-z][a-z0-9+.\-]*+[^a-z0-9+.\-:\\\x00-\x20]", re.IGNORECASE
)
PATH = pattern_of(
    r"<?(?:[./?]|[^\s<>()]{0,200}(?:/|\.(?:png|jpe?g|gif|svg|webp|avif|bmp|ico)\b))", re.IGNORECASE
)
"""Destination on the page's own site that may be an image."""
PATH_DECIDED = pattern_of(r"<?[^\s<>()]{0,200}")
LOADS = pattern_of(
    r"[\s/\"'](?:src|srcset|poster|data|background|action|formaction|ping|xlink:href)\s*=", re.IGNORECASE
)
"""Attributes whose address is loaded, or sent to, without a click."""
REFERENCE = pattern_of(
    r"//|\\|(?:https?|ftp|wss?|data|javascript|vbscript|mailto|blob|file|tel|sms):", re.IGNORECASE
)
ADDRESS = pattern_of(r"[a-z][a-z0-9+.\-]*://[^\s\"'<>]+", re.IGNORECASE)
RUN = pattern_of(r"(?:[!-;=?-\\^-~]|\](?![(\[:]))*")
"""Characters of an address: ASCII without spaces and angle brackets, up to the end of a link's text."""
SLASHES = pattern_of(r"(?:[a-z]+:)?//", re.IGNORECASE)
REMOVED_RUN = pattern_of(r"[^\"`{}|^]*")
SCHEME_BEFORE = pattern_of(r"[a-z][a-z0-9+.\-]*:\Z", re.IGNORECASE)
LABELS_BEFORE = pattern_of(r"(?<![\w@.\-])(?:[\w\-]+\.)+\Z")
HOST = pattern_of(
    rf"(?:[\w\-]+\.)+(?:{TOP_LEVEL})(?=[:/?#][\w/?#])|(?:[\w\-]+\.){{2,}}(?:com|net|org|ru|cn)(?![\w\-])"
    r"|[\w\-]+\.(?-i:com|net|org|ru|cn)(?!\.?[\w\-])",
    re.IGNORECASE,
)
"""Two labels without a path in lower case only: "ASP.NET" and "System.Net.Http" are names of software."""
HOST_SO_FAR = pattern_of(r"[a-z0-9_\-]+(?:\.[a-z0-9_\-]+)*\.?", re.IGNORECASE | re.ASCII)
HOST_END = pattern_of(
    rf"(?P<address>(?<![a-z0-9])(?:www\.|https?(?=:)))|(?<=\.)(?:{TOP_LEVEL})(?=[:/?#][\w/?#])"
    r"|(?<=\.)(?:com|net|org|ru|cn)(?![\w\-])",
    re.IGNORECASE,
)
"""Possible end of a host, or start of another address within labels."""
MAIL_HOST = pattern_of(r"[\w\-]+(?:\.[\w\-]+)*")
MAIL_DOMAIN = pattern_of(r"\.[^\W\d_]{2,}\Z")
NAME_BEFORE = pattern_of(r"[\w.+%'\-]+\Z")
RELATIVE = pattern_of(
    rf"//(?:(?:[\w\-]+\.)+(?:{TOP_LEVEL})(?![\w\-])|(?:[\w\-]+\.)+[a-z]{{2,}}(?=[:/?#][\w/?#]))",
    re.IGNORECASE,
)
BELONGS_TO_IT = pattern_of(r"[\w/\\]")
"""Characters that programs may treat as part of the address before them."""


def starts_harmless(head: str) -> bool:
    """Return True if a destination is harmless after its entities are decoded."""
    from html import unescape

    last = head.rfind("&")
    if last >= 0 and ";" not in head[last:]:
        head = head[:last]
    return _HARMLESS_READ.match(unescape(head)) is not None


def end_of(pattern: re.Pattern[str], text: str, start: int = 0) -> int:
    """Return the end of a pattern's match at an offset, or the offset."""
    found = pattern.match(text, start)
    return start if found is None else found.end()


class Runs:
    """Ends of runs without spaces, as far as received; each run is read once."""

    def __init__(self) -> None:
        self._last = (0, 0)
        """Offset of the last look in the answer, and the least end of its run."""

    def end(self, seen: str, start: int, offset: int) -> int:
        """Return the end of the run at ``start`` of a text that begins at ``offset`` of the answer."""
        begin, end = self._last
        place = start + offset
        is_known = begin <= place < end
        found = end_of(RUN, seen, min(end - offset, len(seen)) if is_known else start)
        # A "]" that ends it may yet turn out to be the end of a link's text.
        self._last = (begin if is_known else place, max(found - 1, start) + offset)
        return found


class StartTags:
    """Ends of start tags; no part is read for two tags."""

    def __init__(self) -> None:
        self._parts: dict[int, list[int]] = {}
        """Start of a part -> end of the known parts after it. Tags with the same parts share the list."""

    def end(self, seen: str, start: int, limit: int, *, offset: int, is_whole: bool) -> int:
        """Return where the tag ends whose name ends at ``start``, or how far its parts are known."""
        end, chain = start, [0]
        while end < limit and not seen.startswith(">", end):
            chain = self._parts.setdefault(end + offset, chain)
            if (reach := chain[0] - offset) > end:
                end = min(reach, limit)
                continue
            part = TAG_PART.match(seen, end)
            if part is None or (part.end() == len(seen) and not is_whole):
                break
            end = part.end()
            chain[0] = end + offset
        if len(self._parts) > _MOST_PARTS:
            self._parts = {place: known for place, known in self._parts.items() if place >= start + offset}
        return end
