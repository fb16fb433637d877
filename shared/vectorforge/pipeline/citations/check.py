"""Citation check: compare cited chunks with the sentences that cite them; by their words, without a model.

A label belongs to the text before it, back to the previous label or the start of the sentence; one that
opens a sentence belongs to the text after it; one after the full stop belongs to the sentence before, unless
that has its own label. Text after the last label of a sentence belongs to that label too. Neighbouring labels
share their text: each chunk must contain a part of it, and all together the whole.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from vectorforge.llm.providers import patterns
from vectorforge.llm.providers.extractive import NO_ANSWER
from vectorforge.llm.providers.quotations import is_ordinal
from vectorforge.llm.providers.words import terms
from vectorforge.patterns import pattern_of
from vectorforge.pipeline.citations.claims import (
    Claim,
    Comparison,
    Evidence,
    Identifier,
    Name,
    locations_within,
    plain,
    read_claims,
)
from vectorforge.pipeline.citations.labels import Label, SourceLabels, find_labels
from vectorforge.pipeline.citations.names import KnownNames, fold, language_of
from vectorforge.pipeline.citations.quantities import Quantity
from vectorforge.pipeline.citations.word_lists import MONTHS
from vectorforge.pipeline.citations.wording import Wording
from vectorforge.pipeline.types import Citation, CitationVerdict
from vectorforge.types import RetrievedChunk

_WORDS = pattern_of(r"\w+")
_MOST_WORDS = 0.6
"""Share of content words in one or two sentences of the chunks from which a sentence is supported."""
_LONGEST_GAP = 2
"""Neighboring words of a supported sentence that the chunk need not contain."""
_FEW_WORDS = 0.15
"""Share in the chunks up to which a sentence with no number or name is not supported."""
_LISTED_LANGUAGES = ("english", "german")
"""Languages whose small words are known, so that the others carry the meaning."""
_ENOUGH_WORDS = 4
"""Content words that such a sentence must have."""
_BETWEEN_LABELS = frozenset("and or und oder et ou y o e".split())  # noqa: SIM905
_BEFORE_LABEL = frozenset(
    "according to per as in from by see laut nach gemaß in aus siehe selon d apres dans voir segun en".split()  # noqa: SIM905
)
"""Words that make a label part of the sentence: "According to [Source 1], ..."."""
_SHORTEST_STATEMENT = 4
"""Words of a sentence that should have a citation."""
_MARK = pattern_of(r"[.!?…。！？\n]")
"""Every end of a sentence contains one of these."""
_AFTER_STOP = pattern_of(r"[ \t]{0,100}\[")
_LONGEST_LABEL = 200
_LONGEST_LABELS = 1_000
"""Characters of all labels after a full stop."""
_MOST_JUDGED = 8_000
"""Characters of judged sentences that are dropped together."""
_CONTEXT_CHARS = 500
"""Characters before a sentence that show its language."""
_END = pattern_of(r"(?<=[.!?…])[\"'”’»)\]*_]{0,40}+(?=[\s\[])|[。！？]+[”’」』）]*|\n")
"""End of a sentence after a full stop: a run of these is matched once."""
_FENCE = pattern_of(r"[ \t]*```[^\n]*\n")
_FULL_WIDTH = frozenset("。！？")
_BLOCK = pattern_of(r"[ \t]*(?:\n|[-*+•>#|\[]|```|\d{1,3}[.)]\s)")
_LONGEST_MARK = 16
_LONGEST_SENTENCE = 4_000
"""Characters; a longer sentence is cut there, because a model may never end one."""
_LONGEST_ABBREVIATION = 10
_LOOK_AHEAD = 250
"""Characters after a full stop that can decide whether it ends a sentence."""
_LONGEST_OPENING = 60
"""Characters before a "1." that still opens a list item."""
_WRAPPED = 50
"""Shortest line that may be wrapped within a sentence, in characters."""
_NUMBERED = pattern_of(r"(?<![\w.,])\d{1,2}\.$")
_NEXT_WORD = pattern_of(r"\s{0,100}(?P<mark>[*_\"'“„(]{0,40})(?P<word>\w{0,40})(?P<more>.?)", re.DOTALL)


@dataclass(slots=True)
class _Group:
    """Neighbouring labels and their text with its claims."""

    labels: list[Label]
    text: str
    claims: list[Claim] = field(default_factory=list)
    language: str | None = None
    """See ``language_of``."""


class CitationChecker:
    """Finds citations in a streamed answer, and checks each at the end of its sentence.

    Args:
        query: Query, whose names count as names in the answer.
        chunks: Chunks in the order of their labels: the first is ``[Source 1]``.
        offset: Characters of the answer before the first piece.
    """

    def __init__(self, query: str, chunks: Sequence[RetrievedChunk], *, offset: int = 0) -> None:
        self._chunks = chunks
        self._query = terms(query)
        self._source_labels = SourceLabels(chunks)
        self._known = KnownNames([query, *(chunk.chunk.text for chunk in chunks)])
        self._evidence: dict[int, Evidence] = {}
        self._answer = ""
        """Answer from ``_dropped`` on; bounded, because each addition copies it."""
        self._dropped = offset
        self._looked_at = 0
        """Length of the answer at the last search for the end of the current sentence."""
        self._has_mark = False
        """True if the current sentence may have ended."""
        self._start = 0
        """Start of the current sentence."""
        self._unlabelled = ""
        """Previous sentence, if it has no label yet."""
        self.citations: list[Citation] = []
        """Checked citations, in the order of the answer."""
        self.invalid = 0
        """Count of numbers that name no chunk."""
        self.uncited = 0
        """Count of sentences without a citation so far; see ``AnswerQuality``."""

    def feed(self, text: str) -> list[Citation]:
        """Add a piece of the answer; return the citations of the sentences that it completes."""
        self._answer += text
        # Most pieces end no sentence; searching the whole sentence for each would be quadratic.
        if not self._has_mark:
            self._has_mark = _MARK.search(text) is not None
            if not self._has_mark and not (self._unlabelled and _AFTER_STOP.match(self._answer, self._start)):
                return []
        judged = self._judge(is_whole=False)
        self._has_mark = _MARK.search(self._answer, self._start) is not None
        self._looked_at = len(self._answer)
        if self._start > _MOST_JUDGED:
            count = self._start - _CONTEXT_CHARS
            self._answer = self._answer[count:]
            self._start, self._looked_at = self._start - count, self._looked_at - count
            self._dropped += count
        return judged

    def finish(self) -> list[Citation]:
        """Return the remaining citations of a complete answer."""
        return self._judge(is_whole=True)

    def _judge(self, *, is_whole: bool) -> list[Citation]:
        judged: list[Citation] = []
        while self._start < len(self._answer):
            end = self._labels_after_stop(is_whole=is_whole)
            if end == self._start:
                decided = self._looked_at - _LOOK_AHEAD - 1
                end = sentence_end(self._answer, self._start, is_whole=is_whole, decided=decided)
            if end is None:
                break
            judged += self._sentence(self._start, end)
            self._start = end
        self.citations += judged
        return judged

    def _labels_after_stop(self, *, is_whole: bool) -> int | None:
        """Return the end of the labels after a sentence without any; its start if none; None if undecided."""
        start, text = self._start, self._answer
        if not self._unlabelled or not _AFTER_STOP.match(text, start):
            return start
        end = start
        while end - start < _LONGEST_LABELS and (opening := _AFTER_STOP.match(text, end)):
            closing = text.find("]", opening.end(), end + _LONGEST_LABEL)
            is_open = closing < 0 and len(text) - end < _LONGEST_LABEL and "\n" not in text[end:]
            if is_open and not is_whole:
                return None
            label = next(find_labels(text, opening.end() - 1, closing + 1), None)
            if label is None or label.start != opening.end() - 1 or text[label.end : label.end + 1] == "(":
                break
            end = label.end
        rest = text[end : end + _LONGEST_LABEL].lstrip(" \t")
        if not rest and not is_whole and len(text) - end < _LONGEST_LABEL:
            return None
        starts_line = text.endswith("\n", 0, start)
        return start if starts_line and rest and not rest.startswith("\n") else end

    def _sentence(self, start: int, end: int) -> Iterator[Citation]:
        """Check the labels of one sentence, in order."""
        text = self._answer[start:end]
        labels = [] if _FENCE.match(text) else self._labels(start, end)
        if not labels:
            self._unlabelled = text if _WORDS.search(text) else self._unlabelled
            self.uncited += _is_statement(text)
            return
        language = language_of(self._answer[max(0, start - _CONTEXT_CHARS) : end])
        for group in self._groups(start, end, labels):
            group.language = language
            verdicts = self._verdicts(group).items()
            citations = {number: self._cite(number, group.text, verdict) for number, verdict in verdicts}
            for label in group.labels:
                for number in label.numbers:
                    if number in citations:
                        start, end = label.start + self._dropped, label.end + self._dropped
                        yield replace(citations[number], start=start, end=end)
                    else:
                        self.invalid += 1
        self._unlabelled = ""

    def _cite(self, number: int, text: str, verdict: CitationVerdict) -> Citation:
        """Return the citation of a chunk for a text, still without the offsets of its label."""
        chunk = self._chunks[number - 1].chunk
        start, end = self._evidence[number].find_support(text, self._query)
        places = locations_within(chunk.locations, start, end)
        start, end = chunk.start_offset + start, chunk.start_offset + end
        return Citation(number, 0, 0, chunk.id, chunk.document_id, verdict, start, end, places)

    def _labels(self, start: int, end: int) -> list[Label]:
        labels = [*find_labels(self._answer, start, end), *self._source_labels.find(self._answer, start, end)]
        return sorted(labels, key=lambda label: label.start)

    def _groups(self, start: int, end: int, labels: Sequence[Label]) -> list[_Group]:
        """Return the labels of a sentence with the claims of each."""
        cuts = [start, *(offset for label in labels for offset in (label.start, label.end)), end]
        texts = [self._answer[a:b] for a, b in zip(cuts[::2], cuts[1::2], strict=True)]
        if not any(map(_WORDS.search, texts)):  # labels only
            self.uncited -= _is_statement(self._unlabelled)
            return [_Group(list(labels), self._unlabelled, self._claims(self._unlabelled, start))]
        is_led = _has_only(texts[0], _BEFORE_LABEL)
        groups: list[_Group] = []
        for i, label in enumerate(labels):
            if i and _has_only(texts[i], _BETWEEN_LABELS):
                groups[-1].labels.append(label)
            else:
                text = "" if is_led else texts[i]
                groups.append(_Group([label], text, self._claims(text, start)))
            if is_led or i == len(labels) - 1:
                groups[-1].claims += self._claims(texts[i + 1], start)
                groups[-1].text += texts[i + 1] if _WORDS.search(texts[i + 1]) else ""
        return groups

    def _claims(self, text: str, start: int) -> list[Claim]:
        if not _WORDS.search(text):
            return []
        before = self._answer[max(0, start - _CONTEXT_CHARS) : start]
        return read_claims(text, known=self._known, context=before)

    def _verdicts(self, group: _Group) -> dict[int, CitationVerdict]:
        """Return the verdict of each existing source of the group, by its number."""
        numbers = sorted({n for label in group.labels for n in label.numbers if 1 <= n <= len(self._chunks)})
        evidence = {n: self._read(n) for n in numbers}
        claims = [claim for claim in group.claims if not _only_counts(claim, evidence.values())]
        held = [{n for n in numbers if evidence[n].holds(claim)} for claim in claims]
        missing = [claim for claim, holding in zip(claims, held, strict=True) if not holding]
        holding_none = set(numbers).difference(*held) if held and not missing else set[int]()
        wording = Wording(plain(group.text), self._known)
        compare = cache(lambda n: evidence[n].compare(group.text, wording))
        verdicts: dict[int, CitationVerdict] = {}
        for n in numbers:
            languages = {group.language, evidence[n].language} - {None}
            if evidence[n].is_quoted(group.text):
                verdicts[n] = _verdict_by_words(wording, [compare(n)], has_claims=bool(claims))
                verdicts[n] = "unchecked" if verdicts[n] == "unsupported" else verdicts[n]
            elif len(languages) > 1:
                verdicts[n] = "unsupported" if any(map(evidence[n].has_another, missing)) else "unchecked"
            elif not all(map(self._is_known_elsewhere, missing)):
                verdicts[n] = "unsupported"  # without a comparison, the most expensive part of a check
            elif n in holding_none or compare(n).agreement == "contradicts":
                verdicts[n] = "unsupported"
            elif missing:
                verdicts[n] = "unsupported" if compare(n).has_other_names else "unchecked"
            else:
                verdicts[n] = _verdict_by_words(
                    wording, [compare(m) for m in numbers], has_claims=bool(claims)
                )
                is_listed = evidence[n].language in _LISTED_LANGUAGES
                if compare(n).agreement == "unclear" or (verdicts[n] == "unsupported" and not is_listed):
                    verdicts[n] = "unchecked"
        return verdicts

    def _read(self, number: int) -> Evidence:
        if number not in self._evidence:
            self._evidence[number] = Evidence(self._chunks[number - 1], self._known)
        return self._evidence[number]

    def _is_known_elsewhere(self, claim: Claim) -> bool:
        """Return True for a name that a chunk in the prompt contains."""
        if not isinstance(claim, Name | Identifier):
            return False
        return any(self._read(n).holds(claim) for n in range(1, len(self._chunks) + 1))


def _verdict_by_words(
    wording: Wording, compared: Collection[Comparison], *, has_claims: bool
) -> CitationVerdict:
    """Return the verdict of a sentence that no chunk contradicts, by its content words."""
    words = next(iter(compared)).words
    near = frozenset[str]().union(*(one.near for one in compared))
    found = frozenset[str]().union(*(one.found for one in compared))
    if len(near) >= _MOST_WORDS * len(words) and wording.longest_run_of(words - near) <= _LONGEST_GAP:
        return "supported" if words or has_claims else "unchecked"
    is_foreign_to_all = len(words) >= _ENOUGH_WORDS and len(found) <= _FEW_WORDS * len(words)
    return "unsupported" if is_foreign_to_all and not has_claims else "unchecked"


def _has_only(text: str, words: frozenset[str]) -> bool:
    return all(word in words for word in _WORDS.findall(fold(text)))


def _is_statement(text: str) -> bool:
    """Return True for a sentence that should have a citation."""
    text = text.strip()
    is_lead = text.startswith(("#", "|", "```", NO_ANSWER)) or text.rstrip("*_ ").endswith((":", "?", "？"))
    return not is_lead and (len(_WORDS.findall(text)) >= _SHORTEST_STATEMENT or text[-1:] in _FULL_WIDTH)


def _only_counts(claim: Claim, evidence: Iterable[Evidence]) -> bool:
    """Return True for a small number in words that no chunk mentions; it may count the answer's points."""
    if not isinstance(claim, Quantity) or not claim.is_count:
        return False
    return not any(chunk.holds(claim) or chunk.contradicts(claim) for chunk in evidence)


def sentence_end(text: str, start: int, *, is_whole: bool, decided: int = 0) -> int | None:
    """Return the end of the sentence that begins at ``start``, or None if more text is needed.

    A line break ends it too, unless a long line is only wrapped, and a fenced block of code is one sentence.
    Labels after the full stop are not part of it.

    Args:
        text: The answer so far.
        start: Offset of the sentence.
        is_whole: The answer is complete; the end of the text ends a sentence.
        decided: Offset before which no end was found earlier.
    """
    if fence := _FENCE.match(text, start):
        closing = re.compile(r"^[ \t]*```[^\n]*(?:\n|\Z)", re.MULTILINE).search(text, fence.end())
        if closing and (closing.group().endswith("\n") or is_whole):
            return closing.end()
        return len(text) if is_whole else None
    latest = start + _LONGEST_SENTENCE
    for match in _END.finditer(text, max(start, decided), latest + 1):
        if match.end() == start:
            continue  # after the end of the previous sentence
        if match.end() > latest:
            break
        is_end = _ends_at(match, start, is_whole=is_whole)
        if is_end is not False:
            return match.end() if is_end else None
    if len(text) > latest:
        return latest
    return len(text) if is_whole else None


def _ends_at(match: re.Match[str], start: int, *, is_whole: bool) -> bool | None:
    """Return True if the sentence ends at this match; None if more text is needed."""
    if match.group()[:1] in _FULL_WIDTH:
        return True
    if match.group() == "\n":
        goes_on = _goes_on(match.string, match.start(), is_whole=is_whole)
        return None if goes_on is None else not goes_on
    return _is_end(match.string, start, match.end(), is_whole=is_whole)


def _goes_on(text: str, line_end: int, *, is_whole: bool) -> bool | None:
    """Return True if a line is only wrapped; None if the next line is needed."""
    line = text[text.rfind("\n", max(0, line_end - _LONGEST_SENTENCE), line_end) + 1 : line_end]
    if len(line) < _WRAPPED or line.endswith((":", "|")) or line.startswith("#"):
        return False
    following = text[line_end + 1 : line_end + 1 + _LONGEST_MARK]
    if len(following.lstrip(" \t")) < _LONGEST_MARK // 2 and "\n" not in following and not is_whole:
        return None
    if line.rstrip().endswith("]") and not following.lstrip()[:1].islower():
        return False  # a label at the end of a line closes its sentence
    return bool(following.strip()) and not _BLOCK.match(following)


def _is_end(text: str, start: int, end: int, *, is_whole: bool) -> bool | None:
    """Return True if a full stop ends the sentence; None if the next word is needed."""
    following = _NEXT_WORD.match(text, end)
    if following is None:  # the pattern matches any text
        return None
    word, is_known = following["word"], bool(following["more"]) or is_whole
    begin = max(start, end - _LONGEST_ABBREVIATION)
    if word[:1].islower():
        return False
    if "\n" in text[end : following.start("word")]:
        return True
    if not word and not is_known:
        return None
    if patterns.ABBREVIATION.search(text, begin, end):
        return False
    if _NUMBERED.search(text, begin, end):
        before = text[start:end] if end - start <= _LONGEST_OPENING else "x"
        if not before.rstrip(".").strip("0123456789 *#-\t\n"):
            return False  # "1." opens a list item
        if not is_known:
            return None
        return word.casefold() not in MONTHS and not is_ordinal(
            text, begin, end, text[max(start, end - _CONTEXT_CHARS) : end]
        )
    return True
