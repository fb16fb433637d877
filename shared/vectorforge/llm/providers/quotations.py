"""Quotable pieces of chunks (sentences, list items, code, rows) without markup."""

import html
import re
import textwrap
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, zip_longest

from vectorforge.llm.providers import patterns

_LONGEST = 500
"""Characters of one quotation."""
_MAX_LIST_CHARS = 700
"""Length of a quoted list with its lead-in."""
_MAX_HEADING_CHARS = 120
"""Length of a quoted heading; a longer one is a paragraph."""
_MAX_TITLE_CHARS = 40
"""Length of a title on the first line of a paragraph."""
_COLONS = (":", "：")
_ENDS = tuple(".!?…。！？")
_AROUND = 300
"""Characters before and after a place that show its language."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a chunk that can be quoted."""

    start: int
    end: int
    """``chunk[start:end]`` is the part with its markup."""
    text: str
    """Text without markup on one line, a row as "column: value; column: value"; code as it is, in a fence."""
    before: str
    """Heading above and preceding text of the same block, which often define what "it" refers to."""
    kind: str = "prose"
    """prose | item | step (of a numbered list) | code | row."""
    is_fragment: bool = False
    """True if the chunk's edge may have cut the sentence."""
    block: int = 0
    """Number of the paragraph, item or row."""
    part: int = 0
    """Number of the block's list, table or code with the paragraph that leads in to it."""
    subject: str = ""
    """First cell of a row, or what an item explains: "dev: ..."."""
    opens: str = ""
    """Heading right above it."""
    heading: str = ""
    """Line to quote above a list or table without a lead-in: the heading that it stands under."""
    path: str = ""
    """Path of the headings above it."""


@dataclass(slots=True)
class _Block:
    start: int
    end: int
    kind: str
    """prose | item | step | code | indented | nested | row | header | heading"""
    part: int = 0
    columns: Sequence[str] = ()
    """Names of the columns of a row."""
    leads_in: bool = False
    """True for text before its list: after a colon, or if the list continues the sentence."""


@dataclass(slots=True)
class _Blocks:
    """Grouping of lines into blocks."""

    items: list[_Block] = field(default_factory=list)
    is_open: bool = False
    is_field: bool = False
    fence: str = ""

    def add(self, start: int, end: int, line: str) -> None:
        last = self.items[-1] if self.items else _Block(0, 0, "heading")
        if self.fence:
            last.end = end
            if line.strip().startswith(self.fence):
                self.fence = ""
        elif self.is_open and last.kind == "prose" and patterns.UNDERLINE.match(line):
            last.kind, self.is_open = "heading", False
        elif patterns.RULE.match(line):
            if last.kind == "row" and "|" in line:
                last.kind = "header"
            self.is_open = False
        else:
            self._add_text(start, end, line, last)

    def _add_text(self, start: int, end: int, line: str, last: _Block) -> None:
        is_indented = patterns.INDENTED.match(line) is not None
        is_field = patterns.FIELD.match(line) is not None
        if fence := patterns.FENCE.match(line):
            self.fence = fence[1]
            self._begin(start, end, "code")
        elif patterns.HEADING.match(line):
            self._begin(start, end, "heading")
        elif patterns.ROW.match(line):
            self._begin(start, end, "row")
        elif item := patterns.ITEM.match(line):
            self._begin(start, end, "step" if item[1] else "item", stays_open=True)
            self.is_field = False
        elif (self.is_open and not (self.is_field and is_field)) or (last.kind == "indented" and is_indented):
            last.end = end
        elif is_indented and last.kind not in ("item", "step"):
            self._begin(start, end, "indented")
        else:
            self._begin(start, end, "prose", stays_open=True)
            self.is_field = is_field

    def _begin(self, start: int, end: int, kind: str, *, stays_open: bool = False) -> None:
        self.items.append(_Block(start, end, kind))
        self.is_open = stays_open

    def finish(self, chunk: str) -> list[_Block]:
        """Number the parts, and give rows the names of their columns."""
        part, of, columns = 0, "", list[str]()
        self.items = [part for block in self.items for part in _without_title(block, chunk)]
        for block, after in zip_longest(self.items, self.items[1:]):
            text = chunk[block.start : block.end]
            if block.kind == "prose" and patterns.NESTED.search(text):
                block.kind = "nested"
            kind = _FAMILIES.get(block.kind, block.kind)
            if block.kind == "header":
                columns = _cells(text)
            elif kind != "row":
                columns = []
            block.columns = columns
            goes_on = (
                (of == "list" and text[:1].isspace()) or (of == "code" and text[:1].islower())
                if kind == "prose"
                else kind != "heading"
                and (of == "lead" or (of == kind != "code") or (of, kind) == ("list", "code"))
            )
            if not goes_on:
                part, of = part + 1, ""
            if kind == "prose":
                block.leads_in = text.endswith(_COLONS) or (
                    not of and after is not None and _continues(text, chunk[after.start : after.end])
                )
                of = of or ("lead" if block.leads_in else "")
            elif (of, kind) != ("list", "code"):
                of = kind
            block.part = part
        return self.items


def _without_title(block: _Block, chunk: str) -> list[_Block]:
    """Return a paragraph without the title on its first line, which is a block of its own.

    A line is one if it ends before its paragraph's width: the first word after it would have fitted on it.
    """
    first, _, rest = chunk[block.start : block.end].partition("\n")
    title, rest = first.strip(), rest.strip()
    if block.kind != "prose" or len(title) > _MAX_TITLE_CHARS or 2 * len(title) > len(rest):
        return [block]
    width = max(map(len, rest.splitlines()))
    word = rest[:1] if patterns.UNSPACED.match(rest) else rest.split(maxsplit=1)[0]
    is_cut = len(title) + 1 + len(word) > width or not title[-1:].isalnum() or title[:1].islower()
    is_text = rest[:1].isalpha() and not rest[:1].islower() and rest.endswith(_ENDS)
    if is_cut or not is_text or ": " in title or title.split()[-1].lower() in patterns.STOP_WORDS:
        return [block]
    end = block.start + len(first)
    return [_Block(block.start, end, "heading"), _Block(end + 1, block.end, "prose")]


def _continues(text: str, after: str) -> bool:
    """Return True if a list continues the sentence: "Before you leave", "- return the keys"."""
    item = patterns.ITEM.match(after)
    is_open = text[-1:].isalnum() or text.endswith(",")
    return item is not None and is_open and after[item.end() :][:1].islower()


_FAMILIES = {"item": "list", "step": "list", "header": "row", "indented": "code", "nested": "code"}


def split(chunk: str, heading: str = "", headings: Sequence[tuple[int, str]] = ()) -> list[Piece]:
    """Return the pieces of a chunk, in order, without headings, rules and pieces with citation labels.

    A quoted "[Source 2]" or "[2]" would be read as our own citation.

    Args:
        chunk: Text of the chunk.
        heading: Path of the headings above it.
        headings: Heading paths of its parts, with the offset where each begins; empty if unknown.
    """
    chunk = _without_comments(chunk)
    footnote = patterns.FOOTNOTE if _has_footnotes(chunk) else None
    blocks = _Blocks()
    offset = 0
    for line in chunk.splitlines(keepends=True):
        blocks.add(offset, offset + len(line.rstrip()), line)
        offset += len(line)
    pieces: list[Piece] = []
    path, heading = heading, heading.rpartition(" > ")[2]
    line, lead, under, opens, part = heading_line(heading), "", "", "", 0
    last = len(chunk.rstrip())
    for at, block in enumerate(blocks.finish(chunk)):
        text = chunk[block.start : block.end]
        if block.kind == "heading" or (not block.leads_in and _is_title(text, block, chunk, last)):
            heading = opens = text.strip("# \n=-")
            line = heading_line(heading)
            path = next((path for offset, path in reversed(headings) if offset <= block.start), "")
            if heading not in path.split(" > "):  # it only looks like one
                path = f"{path} > {heading}".removeprefix(" > ")
            continue
        if block.part != part:
            part, lead = block.part, text[-250:] if block.kind == "prose" else ""
            under = line if _FAMILIES.get(block.kind, block.kind) in ("list", "row") else ""
        for start, end in _spans(chunk, block):
            quoted = _quoted(chunk[start:end], block)
            if footnote and block.kind not in ("code", "indented", "nested"):
                quoted = footnote.sub("", quoted)
            if len(quoted) < 2 or patterns.LABEL_LIKE.search(quoted):
                continue
            above = chunk[max(block.start, start - 250) : start]
            before = f"{path} {above}" if block.kind == "prose" else f"{path} {lead} {above}"
            is_cut = quoted[0].islower() or (quoted[-1].isalnum() and not block.leads_in)
            kind = "code" if quoted.startswith("```") else "prose" if block.kind == "nested" else block.kind
            subject = _subject(quoted, chunk[start:end], block)
            is_fragment = block.kind == "prose" and is_cut
            pieces.append(
                Piece(start, end, quoted, before, kind, is_fragment, at, part, subject, opens, under, path)
            )
            opens = quoted if kind == "prose" and patterns.QUESTION.search(quoted) else ""
            if leads_in(pieces[-1]) and len(quoted) <= _MAX_HEADING_CHARS:
                under = quoted
    return pieces


def heading_line(heading: str) -> str:
    """Return a heading as a lead-in, or "" if it cannot be quoted."""
    line = _plain(heading)
    if not line or len(line) > _MAX_HEADING_CHARS or patterns.LABEL_LIKE.search(line):
        return ""
    return line if patterns.QUESTION.search(line) else f"{line.rstrip('.:：。!')}:"


def _without_comments(chunk: str) -> str:
    """Blank out HTML comments, so that all offsets stay."""
    end = chunk.rfind("-->") + 3  # each comment before it ends: linear time
    if end < 3:
        return chunk
    return patterns.COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), chunk[:end]) + chunk[end:]


def _has_footnotes(chunk: str) -> bool:
    """Return True if numbers in brackets after words are marks of footnotes, not indexes: argv[1]."""
    marks = list(patterns.FOOTNOTE.finditer(chunk))
    numbers = {int(mark[1]) for mark in marks}
    before = (patterns.VARIABLE.search(chunk, max(0, mark.start() - 30), mark.start()) for mark in marks)
    words = [word[0] for word in before if word]
    is_series = not words or any(number + 1 in numbers for number in numbers)
    return is_series and 0 not in numbers and len(words) == len(set(words))


def _is_title(text: str, block: _Block, chunk: str, last: int) -> bool:
    """Return True for a short line without a full stop between blank lines, and a line with a question."""
    if block.kind != "prose" or len(text) > 80 or "\n" in text or block.end >= last:
        return False
    text = text.rstrip("*_")
    if patterns.QUESTION.search(text) and not patterns.SENTENCE_END.search(text):
        return True
    around = chunk[max(0, block.start - 2) : block.start] + chunk[block.end : block.end + 2]
    if patterns.CLAUSE.search(text) or _is_value(text):
        return False
    return text[-1:].isalnum() and not around.strip()


def _is_value(text: str) -> bool:
    """Return True for a name with a number: "Calories: 205"."""
    _, _, value = text.replace("：", ":").partition(":")
    return bool(patterns.FIELD.match(text) and patterns.NUMERIC_ANSWER.search(value))


def _quoted(text: str, block: _Block) -> str:
    """Return the text of a piece as people quote it."""
    if block.kind == "code":
        lines = text.split("\n")
        if not patterns.FENCE.match(text) or (len(lines) > 1 and patterns.FENCE.match(lines[-1])):
            return text
        return f"{text}\n```" if len(lines) > 1 else ""  # a label in an open fence would be code
    if block.kind == "indented" or (block.kind == "nested" and "\n" in text):
        return f"```\n{textwrap.dedent(text)}\n```"
    if block.kind == "row" and "|" in text:
        cells = _cells(text)
        names = block.columns[: len(cells)] if len(block.columns) >= len(cells) else [""] * len(cells)
        named = zip(names, cells, strict=True)
        return "; ".join(f"{name}: {cell}" if name else cell for name, cell in named if cell)
    return _plain(text)


def _subject(quoted: str, text: str, block: _Block) -> str:
    if block.kind == "row":
        return _cells(text)[0] if "|" in text else quoted.partition(";")[0].partition(": ")[2]
    name = patterns.NAMED.match(quoted) if block.kind in ("item", "step") else None
    return name[1] if name else ""


def _cells(row: str) -> list[str]:
    """Return the texts of a row's cells."""
    return [_plain(cell.replace("\\|", "|")) for cell in patterns.CELL_END.split(row.strip().strip("|"))]


def _plain(text: str) -> str:
    """Return a text on one line without Markdown and the tags that Markdown allows."""
    plain = " ".join(patterns.MARKUP.sub(_unmarked, patterns.MARKER.sub("", text)).split())
    if plain.count("**") == 1:  # the other mark is in another sentence of the paragraph
        return plain.removeprefix("**").removesuffix("**")
    return plain


def _unmarked(match: re.Match[str]) -> str:
    if (code := match["code"]) is not None:
        return match[0] if patterns.NEEDS_CODE.search(code) else code
    groups = ("link", "strong", "italic", "address", "reference")
    if (inner := next(filter(None, map(match.group, groups)), None)) is not None:
        return patterns.MARKUP.sub(_unmarked, inner)
    if match["entity"]:
        return html.unescape(match["entity"])
    return "" if match["inline"] else match["escaped"] or " "


def _spans(chunk: str, block: _Block) -> list[tuple[int, int]]:
    """Return the offsets of a block's pieces, without surrounding white space."""
    if block.kind == "header":
        return []
    if block.kind in ("code", "indented"):
        spans = _lines(chunk, block) if block.end - block.start > _LONGEST else [(block.start, block.end)]
    elif block.kind == "row":
        spans = [(block.start, block.end)]
    else:
        spans = _sentences(chunk, block.start, block.end)
    trimmed: list[tuple[int, int]] = []
    for start, end in spans:
        text = chunk[start:end].rstrip()
        if marks := patterns.FOOTNOTES.search(text, max(0, len(text) - 40)):
            text = text[: marks.start()].rstrip()
        end = start + len(text)
        if block.kind not in ("indented", "nested"):
            start += len(text) - len(text.lstrip())
        if end - start > _LONGEST:
            space = "\n" if block.kind == "nested" else " "
            end = start + (chunk[start : start + _LONGEST].rfind(space) + 1 or _LONGEST)
            end -= len(chunk[start:end]) - len(chunk[start:end].rstrip())
        if end > start:
            trimmed.append((start, end))
    return trimmed


def _sentences(chunk: str, start: int, end: int) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    position = start
    for match in patterns.SENTENCE_END.finditer(chunk, start, end):
        stop = match.start() + 1
        in_code = chunk.count("`", position, stop) % 2 and "`" in chunk[stop : stop + _LONGEST]
        if in_code or patterns.ABBREVIATION.search(chunk, max(position, stop - 12), stop):
            continue
        after = chunk[match.end() : match.end() + 1]
        if after.islower() and chunk[stop - 1] in ".!?…":
            continue
        is_short = after.isdigit() and patterns.SHORT_WORD.search(chunk, max(position, stop - 6), stop)
        if is_short or (
            chunk[stop - 1] == "." and chunk[position : stop - 1].strip("*_").isalpha()
        ):  # "Max. 5 kg"
            continue
        if is_ordinal(chunk, max(position, stop - 8), stop, chunk[max(0, stop - _AROUND) : stop + _AROUND]):
            continue
        if patterns.ITEM.fullmatch(chunk[position : match.end()]):  # "1." of a numbered item
            continue
        closing = patterns.CLOSING.match(chunk, stop, end)
        spans.append((position, closing.end() if closing else stop))
        position = match.end()
    return [*spans, (position, end)] if position < end else spans


def is_ordinal(text: str, start: int, end: int, sample: str) -> bool:
    """Return True if the full stop before ``end`` makes a number an ordinal.

    ``start`` is an offset before the number, ``sample`` a text around it that shows the language.
    """
    if not patterns.ORDINAL.search(text, start, end):
        return False
    marks = sum(1 for _ in patterns.ORDINAL_LANGUAGE.finditer(sample))
    return marks * patterns.CHARS_PER_MARK > len(sample) or patterns.MONTH.match(text, end) is not None


def _lines(chunk: str, block: _Block) -> list[tuple[int, int]]:
    """Return the lines of a long code block, without its fences."""
    spans = []
    offset = block.start
    for line in chunk[block.start : block.end].splitlines(keepends=True):
        if not patterns.FENCE.match(line):
            spans.append((offset, offset + len(line)))
        offset += len(line)
    return spans


def following(piece: Piece, part: Sequence[Piece]) -> Piece | None:
    """Return the next sentence of the same paragraph or item."""
    at = part.index(piece) + 1
    return part[at] if at < len(part) and part[at].block == piece.block else None


def together(
    piece: Piece, part: Sequence[Piece], *, is_procedure: bool, used_chars: int = 0
) -> Sequence[Piece]:
    """Return a piece with what it leads in to, code with its lead-in, and a step of a procedure with all.

    Of a long list that a piece leads in to, the first items are returned, of a procedure or code all or none,
    and at most ``_MAX_LIST_CHARS`` with those used, unless the piece alone is longer.
    """
    most_chars = _MAX_LIST_CHARS - used_chars
    at, is_step = part.index(piece), is_procedure and piece.kind == "step"
    lead = next((i for i, one in enumerate(part) if one.kind != "prose"), len(part)) - 1
    if lead >= 0 and lead + 1 < len(part) and (at == lead or piece.kind == "code" or is_step):
        chosen = part[lead:]
    elif is_step:
        chosen = part
    else:
        return [piece]
    lengths = list(accumulate(len(one.text) for one in chosen))
    if lengths[-1] > most_chars and at == lead and chosen[1].kind != "code":
        chosen = chosen[: bisect_right(lengths, most_chars)] or [piece]
    return chosen if lengths[len(chosen) - 1] <= most_chars else [piece]


def leads_in(piece: Piece) -> bool:
    """Return True for a sentence that says nothing without what follows: "In this order:"."""
    return piece.kind == "prose" and piece.text.endswith(_COLONS)
