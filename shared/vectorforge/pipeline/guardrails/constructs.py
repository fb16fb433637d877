"""Links, images, tags and addresses in an answer: what becomes of each one that a ``LinkFilter`` meets."""

import re
from collections.abc import Callable
from typing import TypeAlias

from vectorforge.pipeline.guardrails import addresses as patterns
from vectorforge.pipeline.guardrails.addresses import AllowedAddresses, end_of, is_external

REMOVED = "[link removed]"

_LONGEST = 2_000
"""Characters of a construct that are held back; a longer one is removed."""
_LONGEST_TITLE = 400
_LONGEST_HOST = 253
"""Characters of a name in DNS: https://www.rfc-editor.org/rfc/rfc1035#section-2.3.4, without the last dot."""
_ENTITY = 200
"""Characters of a destination that show its scheme, entities included."""
CONTEXT_CHARS = 80
"""Characters before a construct that belong to it: a scheme, a host's labels."""

_Step: TypeAlias = tuple[str, int] | None
"""Replacement of a construct and its end; None if more text is needed."""


class Constructs:
    """Decides about the constructs of one answer, in their order.

    Args:
        known: Addresses that may stay.
    """

    def __init__(self, known: AllowedAddresses) -> None:
        self._known = known
        self._is_whole = self._in_image = False
        self._offset = 0
        self._runs, self._tags = patterns.Runs(), patterns.StartTags()
        self.changes = 0
        """Count of removed addresses and of images that became links."""
        self.swallows = False
        """True if the last construct was too long to be held back, so that its rest is removed too."""

    def resolve(
        self, kind: str, seen: str, start: int, *, offset: int, is_whole: bool, in_image: bool
    ) -> _Step:
        """Return the replacement of the construct at ``start``, and its end; None if more text is needed.

        ``kind`` is a group of ``links.TRIGGER``. ``seen`` begins at ``offset`` of the answer, and ends it if
        that ``is_whole``; an image's text may be open if ``in_image``.
        """
        self._offset, self._is_whole, self._in_image, self.swallows = offset, is_whole, in_image, False
        resolver: Callable[[str, int], _Step] = getattr(self, f"_{kind}")
        return resolver(seen, start)

    def _ends(self, seen: str, end: int) -> bool:
        """Return True if a match that ends there cannot become longer."""
        return end < len(seen) or self._is_whole

    def _remove(self, written: str, end: int) -> _Step:
        self.changes += 1
        return written, end

    def _too_long(self, start: int, lead: str = "") -> _Step:
        self.swallows = True
        return self._remove(lead + REMOVED, start + _LONGEST)

    def _destination(self, seen: str, start: int) -> tuple[int, int] | None:
        """Return start and end of a destination, possibly after a line break; None if not yet known."""
        begin = end_of(patterns.BLANK, seen, start)
        if not self._ends(seen, begin):
            return None
        if seen.startswith("<", begin):
            end = end_of(patterns.POINTED, seen, begin)
            end += seen.startswith(">", end)
        else:
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
        begin = end_of(patterns.BLANK, seen, start + 1)
        if begin == len(seen) or not patterns.HARMLESS.match(seen, begin):
            head = seen[begin : begin + _ENTITY]
            if len(head) < _ENTITY or not patterns.starts_harmless(head):
                return None
        is_empty = seen[begin] == ")" or seen[begin].isspace()
        return (" " if is_empty and begin - start > 100 else "") + seen[start], begin

    def _link(self, seen: str, start: int) -> _Step:
        """``(destination "title")`` after the text of a link or an image."""
        inside = self._stays_inside(seen, start)
        if inside is not None:
            first = seen[inside[1]]
            return self._inside(inside[0], start, is_empty=first == ")" or first.isspace())
        place = self._destination(seen, start + 1)
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
            end = end_of(patterns.PATH_DECIDED, seen, inside[1])
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
        if end < 0:
            if len(seen) - start < _LONGEST and not self._is_whole:
                return None
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
        end = limit
        if seen.find(">", name.end(), limit) >= 0:
            end = self._tags.end(seen, name.end(), limit, offset=self._offset, is_whole=self._is_whole)
        if end >= limit or not seen.startswith(">", end):
            if len(seen) < limit and not self._is_whole:
                return None
            return self._escaped(seen, start)
        return self._whole_tag(seen, start, end + 1, name[1].lower())

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
        return self._bare(seen, start, _before(patterns.SCHEME_BEFORE, seen, start))

    def _relative(self, seen: str, start: int) -> _Step:
        """``//example.com/...``, which some programs turn into links."""
        end = self._runs.end(seen, start, self._offset)
        if end - start <= _LONGEST and not self._ends(seen, end):
            return None
        if patterns.RELATIVE.match(seen, start, end) is None:
            return seen[start], start + 1
        return self._bare(seen, start)

    def _host(self, seen: str, start: int) -> _Step:
        """``com/...`` after ``example.``, which many programs turn into links."""
        end = end_of(patterns.HOST_SO_FAR, seen, start)
        if end - start <= _LONGEST and end + 1 >= len(seen) and not self._is_whole:
            return None
        found = patterns.HOST_END.search(seen, start, min(end, start + _LONGEST) + 2)
        if found is None or found.lastgroup == "address":
            end = max(start + 1, min(end, start + _LONGEST) if found is None else found.start())
            return seen[start:end], end
        if found.start() - start > _LONGEST_HOST:  # the labels before are part of no name
            end = seen.rfind(".", start, found.start() - _LONGEST_HOST // 2) + 1 or start + 1
            return seen[start:end], end
        labels = _before(patterns.LABELS_BEFORE, seen, start)
        if not labels or not patterns.HOST.match(labels + seen[start : found.end() + 2]):
            return seen[start], start + 1
        return self._bare(seen, start, labels)

    def _mail(self, seen: str, start: int) -> _Step:
        """``@example.com`` after a name, which programs turn into links."""
        end = end_of(patterns.MAIL_HOST, seen, start + 1)
        if end - start <= _LONGEST and end + 1 >= len(seen) and not self._is_whole:
            return None
        if end - start > _LONGEST_HOST or not patterns.MAIL_DOMAIN.search(seen, start, end):
            return "@", start + 1
        name = _before(patterns.NAME_BEFORE, seen, start)
        if name and self._known.has(name + seen[start:end]):
            return seen[start:end], end
        return self._remove(f"@{REMOVED}", end)

    def _call(self, seen: str, start: int) -> _Step:
        """Text after ``mailto:``, ``sms:`` and the like, which programs turn into links."""
        end = self._runs.end(seen, start, self._offset)
        if end == start:
            return seen[start], start + 1
        if self._ends(seen, end) and (allowed := self._known.known_start(seen[start:end])) is not None:
            return allowed, start + len(allowed)
        return self._bare(seen, start, _before(patterns.SCHEME_BEFORE, seen, start))

    def _bare(self, seen: str, start: int, prefix: str = "") -> _Step:
        """Address in the text; a part of it may have been returned before."""
        end = self._runs.end(seen, start, self._offset)
        if end - start > _LONGEST:
            return self._too_long(start)
        if not self._ends(seen, end):
            return None
        run = seen[start:end]
        allowed = self._known.known_start(run, prefix)
        if allowed is not None:
            if patterns.BELONGS_TO_IT.search(run, len(allowed)):
                return allowed + " ", start + len(allowed)
            return run + (" " if seen[end : end + 1].isalnum() else ""), end
        run = run[: end_of(patterns.REMOVED_RUN, run)]
        slashes = patterns.SLASHES.match(run)
        length = max(len(patterns.without_punctuation(run)), slashes.end() if slashes else 1)
        return self._remove(REMOVED, start + length)


def _before(pattern: re.Pattern[str], seen: str, start: int) -> str:
    """Return the match that ends where a construct begins; empty if there is none."""
    found = pattern.search(seen[max(0, start - CONTEXT_CHARS) : start])
    return found[0] if found else ""
