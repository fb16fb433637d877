"""Citation check: compare cited chunks with the sentences that cite them; by spelling, without a model.

A label belongs to the text before it, back to the previous label or the start of the sentence; one that
opens a sentence belongs to the text after it; one after the full stop belongs to the sentence before, unless
that has its own label. Text after the last label of a sentence belongs to that label too. Neighbouring labels
share their text: each chunk must contain a part of it, and all together the whole.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from vectorforge.pipeline.citations.claims import Claim, Evidence, read_claims
from vectorforge.pipeline.citations.labels import Label, SourceLabels, find_labels
from vectorforge.pipeline.citations.names import KnownNames, fold
from vectorforge.pipeline.citations.quantities import Quantity
from vectorforge.pipeline.citations.sentences import LOOK_AHEAD, is_fence, sentence_end
from vectorforge.pipeline.types import Citation, CitationEvent, CitationVerdict, QueryEvent, TokenEvent
from vectorforge.types import RetrievedChunk

_WORDS = re.compile(r"\w+")
_BETWEEN_LABELS = frozenset("and or und oder et ou y o e".split())  # noqa: SIM905
_BEFORE_LABEL = frozenset(
    "according to per as in from by see laut nach gemaß in aus siehe selon d apres dans voir segun en".split()  # noqa: SIM905
)
"""Words that make a label part of the sentence: "According to [Source 1], ..."."""
_MARK = re.compile(r"[.!?…。！？\n]")
"""Every end of a sentence contains one of these."""
_AFTER_STOP = re.compile(r"[ \t]{0,100}\[")
_LONGEST_LABEL = 200
_LONGEST_LABELS = 1_000
"""Characters of all labels after a full stop."""
_KEPT = 8_000
"""Characters of judged sentences that are dropped together."""
_CONTEXT_CHARS = 500
"""Characters before a sentence that show its language."""


@dataclass(slots=True)
class _Group:
    """Neighbouring labels and the claims of their text."""

    labels: list[Label] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)


class CitationChecker:
    """Finds citations in a streamed answer, and checks each at the end of its sentence.

    Args:
        question: Query, whose names count as names in the answer.
        chunks: Chunks in the order of their labels: the first is ``[Source 1]``.
    """

    def __init__(self, query: str, chunks: Sequence[RetrievedChunk]) -> None:
        self._passages = chunks
        self._source_labels = SourceLabels(chunks)
        self._known = KnownNames([query, *(chunk.chunk.text for chunk in chunks)])
        self._evidence: dict[int, Evidence] = {}
        self._answer = ""
        """Answer from ``_dropped`` on; bounded, because each addition copies it."""
        self._dropped = 0
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
        if self._start > _KEPT:
            self._drop(self._start - _CONTEXT_CHARS)
        return judged

    def _drop(self, count: int) -> None:
        self._answer = self._answer[count:]
        self._start -= count
        self._looked_at -= count
        self._dropped += count

    def finish(self) -> list[Citation]:
        """Return the remaining citations of a complete answer."""
        return self._judge(is_whole=True)

    def _judge(self, *, is_whole: bool) -> list[Citation]:
        judged: list[Citation] = []
        while self._start < len(self._answer):
            end = self._labels_after_stop(is_whole=is_whole)
            if end == self._start:
                decided = self._looked_at - LOOK_AHEAD - 1
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
        labels = [] if is_fence(text) else self._labels(start, end)
        if not labels:
            self._unlabelled = text if _WORDS.search(text) else self._unlabelled
            return
        for group in self._groups(start, end, labels):
            verdicts = self._verdicts(group)
            for label in group.labels:
                for number in label.numbers:
                    if number not in verdicts:
                        self.invalid += 1
                        continue
                    chunk = self._passages[number - 1].chunk
                    start, end = label.start + self._dropped, label.end + self._dropped
                    yield Citation(number, start, end, chunk.id, chunk.document_id, verdicts[number])
        self._unlabelled = ""

    def _labels(self, start: int, end: int) -> list[Label]:
        found = [*find_labels(self._answer, start, end), *self._source_labels.find(self._answer, start, end)]
        return sorted(found, key=lambda label: label.start)

    def _groups(self, start: int, end: int, labels: Sequence[Label]) -> list[_Group]:
        """Return the labels of a sentence with the claims of each."""
        cuts = [start, *(offset for label in labels for offset in (label.start, label.end)), end]
        texts = [self._answer[a:b] for a, b in zip(cuts[::2], cuts[1::2], strict=True)]
        if not any(map(_WORDS.search, texts)):  # labels only
            return [_Group(list(labels), self._claims(self._unlabelled, start))]
        is_led = _has_only(texts[0], _BEFORE_LABEL)
        groups: list[_Group] = []
        for i, label in enumerate(labels):
            if i and _has_only(texts[i], _BETWEEN_LABELS):
                groups[-1].labels.append(label)
            else:
                groups.append(_Group([label], [] if is_led else self._claims(texts[i], start)))
            if is_led or i == len(labels) - 1:
                groups[-1].claims += self._claims(texts[i + 1], start)
        return groups

    def _claims(self, text: str, start: int) -> list[Claim]:
        if not _WORDS.search(text):
            return []
        before = self._answer[max(0, start - _CONTEXT_CHARS) : start]
        return read_claims(text, known=self._known, context=before)

    def _verdicts(self, group: _Group) -> dict[int, CitationVerdict]:
        """Return the verdict of each existing source of the group, by its number."""
        numbers = {n for label in group.labels for n in label.numbers if 1 <= n <= len(self._passages)}
        evidence = {n: self._evidence.setdefault(n, Evidence(self._passages[n - 1])) for n in numbers}
        held = [
            {n for n in numbers if evidence[n].holds(claim)}
            for claim in group.claims
            if not _only_counts(claim, evidence.values())
        ]
        if not held:
            return dict.fromkeys(numbers, "unchecked")
        are_all_held, holding = all(held), set().union(*held)
        return {n: "supported" if are_all_held and n in holding else "unsupported" for n in numbers}


def _has_only(text: str, words: frozenset[str]) -> bool:
    return all(word in words for word in _WORDS.findall(fold(text)))


def _only_counts(claim: Claim, evidence: Iterable[Evidence]) -> bool:
    """Return True for a small number in words that no chunk mentions; it may count the answer's points."""
    if not isinstance(claim, Quantity) or not claim.is_count:
        return False
    return not any(chunk.holds(claim) or chunk.contradicts(claim) for chunk in evidence)


def replay_as_events(answer: str, citations: Iterable[Citation]) -> Iterator[QueryEvent]:
    """Yield a complete answer as the events of a generated one: each citation after its label."""
    done = 0
    for citation in citations:
        if citation.end > done:
            yield TokenEvent(answer[done : citation.end])
            done = citation.end
        yield CitationEvent(citation)
    if done < len(answer):
        yield TokenEvent(answer[done:])
