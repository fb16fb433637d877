"""The service's readers of answers, queries and documents, as functions of pieces of text."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias
from uuid import uuid4

from tests.support.rag.chunks import make_chunk
from vectorforge.api.openai.labels import (
    LabelRewriter,
    rewrite_labels,
    sources_footer,
    without_sources_footer,
)
from vectorforge.api.streaming.sse import EventEncoder
from vectorforge.api.ui_chat.encoder import UIMessageEncoder
from vectorforge.docrag.splitter import RecursiveSplitter
from vectorforge.ingestion.chunk import chunk_text
from vectorforge.ingestion.extract import extract, media
from vectorforge.llm.providers.quotations import split
from vectorforge.llm.providers.words import terms
from vectorforge.pipeline import prompts
from vectorforge.pipeline.citations import claims, names
from vectorforge.pipeline.citations.check import CitationChecker, sentence_end
from vectorforge.pipeline.citations.labels import InventedLabels, SourceLabels, find_labels, neutralise_labels
from vectorforge.pipeline.citations.quantities import parts_of_group, read_quantities
from vectorforge.pipeline.citations.wording import Wording, assess, compare
from vectorforge.pipeline.context import cite
from vectorforge.pipeline.follow_ups import expand
from vectorforge.pipeline.guardrails.addresses import is_external
from vectorforge.pipeline.guardrails.links import LinkFilter
from vectorforge.pipeline.guardrails.log_text import redact
from vectorforge.pipeline.presets import last_exchanges, trim_context_to_token_limit
from vectorforge.pipeline.structured import AnswerReader
from vectorforge.pipeline.types import HistoryMessage, TokenEvent
from vectorforge.retriever.base import QueryPreprocessor
from vectorforge.tokens import estimate_tokens

Read: TypeAlias = Callable[[Sequence[str]], object]
"""Reads the pieces of one text, in order."""

PASSAGES = [
    make_chunk(
        "Dough rises 2 hours at 24 °C, says Anna Berg on 3 May 2024.", source="https://example.org/bread"
    ),
    make_chunk(
        "The kettle of Example.com boils at 100 degrees. See https://example.org/a?b=1.", title="Kettle"
    ),
]


def _links(pieces: Sequence[str]) -> object:
    links = LinkFilter(lambda: [passage.chunk.text for passage in PASSAGES])
    return [*map(links.feed, pieces), links.finish()]


def _known_links(pieces: Sequence[str]) -> object:
    """Filter links while the chunks contain the same text, so that addresses are looked up in it."""
    links = LinkFilter(lambda: ["".join(pieces)])
    return [*map(links.feed, pieces), links.finish()]


def _citations(pieces: Sequence[str]) -> object:
    checker = CitationChecker("When?", PASSAGES)
    return [*map(checker.feed, pieces), checker.finish()]


def _invented_labels(pieces: Sequence[str]) -> object:
    labels = InventedLabels(5)
    return [*map(labels.feed, pieces), labels.finish()]


def _labels(pieces: Sequence[str]) -> object:
    rewriter = LabelRewriter(PASSAGES)
    return [*map(rewriter.feed, pieces), rewriter.finish()]


def _json(pieces: Sequence[str]) -> object:
    reader = AnswerReader()
    return [*map(reader.feed, pieces), reader.finish(), reader.object()]


def _json_answer(pieces: Sequence[str]) -> object:
    return _json(['{"answer": "', *pieces, '"}'])


def _json_value(pieces: Sequence[str]) -> object:
    return _json(['{"other": [', *pieces])


def _sse(pieces: Sequence[str]) -> object:
    encoder = EventEncoder(request_id="r")
    return [encoder.encode(TokenEvent(piece)) for piece in pieces]


def _ui(pieces: Sequence[str]) -> object:
    encoder = UIMessageEncoder(request_id="r")
    return [encoder.encode(TokenEvent(piece)) for piece in pieces]


STREAMED: Mapping[str, Read] = {
    "links": _links,
    "known links": _known_links,
    "citations": _citations,
    "invented labels": _invented_labels,
    "numbered labels": _labels,
    "answer json": _json,
    "answer json text": _json_answer,
    "answer json value": _json_value,
    "server-sent events": _sse,
    "ui messages": _ui,
}
"""Readers of an answer in pieces."""


def _sentences(text: str) -> object:
    start, found = 0, []
    while start < len(text):
        end = sentence_end(text, start, is_whole=True)
        assert end is not None
        found.append(end)
        start = end
    return found


def _evidence(text: str) -> object:
    passage = claims.Evidence(make_chunk(text))
    found = claims.read_claims(
        "Anna Berg's 24 SDKs of max_retries, 3 May 2024, 12:30, https://example.org/a."
    )
    return [passage.holds(claim) for claim in found]


def _compared(text: str) -> object:
    """Check claims with other numbers than the text against the text."""
    passage = claims.Evidence(make_chunk(text))
    found = claims.read_claims(text.replace("7 ", "8 ").replace("two", "six"))
    return [passage.holds(claim) for claim in found]


def _judged(text: str) -> object:
    """Check a sentence that is its whole chunk but for its first words."""
    chunk = make_chunk(f"Not {text}")
    wording = Wording(claims.plain(text))
    return claims.Evidence(chunk).compare(f"So {text}", wording), compare(wording, wording, frozenset())


def _rewritten(text: str) -> object:
    checker = CitationChecker("", PASSAGES)
    return rewrite_labels(text, [*checker.feed(text), *checker.finish()], PASSAGES)


def _assessed(text: str) -> object:
    return assess(text[:1000], text, [passage.chunk.text for passage in PASSAGES])


def _footer(text: str) -> object:
    checker = CitationChecker("", PASSAGES)
    named = cite(make_chunk("x", source=text, title=text))
    return sources_footer([*checker.feed("So [1]."), *checker.finish()], [named])


def _extracted(kind: str) -> Callable[[str], object]:
    def read(text: str) -> object:
        content = text.encode("utf-8", "replace")[:60_000]
        try:
            return extract(b"a" + content, source="a", media_type=kind)
        except Exception as exc:  # noqa: BLE001 - what cannot be read is read to where that shows
            return exc

    return read


def _cues(text: str) -> object:
    return extract(f"00:01 --> 00:02\na\n{text}\n<v {text}".encode("utf-8", "replace"), source="a.vtt")


def _event(text: str) -> object:
    content = f'SUMMARY:a\nDTEND:{text}\nATTENDEE;CN="{text}\nN;{text}:{text}\n{text}\n'
    content += "NOTE;QUOTED-PRINTABLE:" + "=\n".join(text)
    return extract(content.encode("utf-8", "replace"), source="a.ics")


def _record(text: str) -> object:
    line = json.dumps({"text": f"a{text}", "id": uuid4().hex})
    return extract(line.encode(), source="a.jsonl")


WHOLE: Mapping[str, Callable[[str], object]] = {
    "labels": lambda text: list(find_labels(text, 0, len(text))),
    "labels by source": lambda text: list(SourceLabels(PASSAGES).find(f"source: {text}", 0, len(text) + 8)),
    "neutralised labels": neutralise_labels,
    "rewritten labels": _rewritten,
    "sentences": _sentences,
    "claims": lambda text: claims.read_claims(text),
    "evidence": _evidence,
    "claims and evidence": _compared,
    "sentence and chunk": _judged,
    "language": names.language_of,
    "quantities": read_quantities,
    "groups of digits": lambda text: list(parts_of_group(text)),
    "known names": lambda text: "anna" in names.KnownNames([text]),
    "acronyms": names.acronyms,
    "addresses": names.take_addresses,
    "code": names.take_code,
    "external": is_external,
    "redaction": redact,
    "quality": _assessed,
    "terms": terms,
    "quoted sentences": split,
    "fence": prompts.fence,
    "template": lambda text: prompts.render_template(f"{text}{{context}}", text),
    "comparable prompt": prompts.without_fence_number,
    "query": lambda text: QueryPreprocessor(10**6).clean(f"a{text}"),
    "tokens": estimate_tokens,
    "sources footer": _footer,
    "without sources footer": without_sources_footer,
    "follow-up": lambda text: expand(text, [HistoryMessage("user", text), HistoryMessage("assistant", text)]),
    "earlier exchanges": lambda text: last_exchanges([HistoryMessage("user", text)]),
    "docrag context": lambda text: trim_context_to_token_limit(text, 500),
    "chunks": lambda text: chunk_text(f"a{text}"),
    "markdown chunks": lambda text: chunk_text(f"a{text}", media_type=media.MARKDOWN),
    "recursive chunks": RecursiveSplitter().split_text,
    "extracted markdown": _extracted(media.MARKDOWN),
    "extracted text": _extracted(media.PLAIN),
    "extracted record": _record,
    "extracted transcript": _cues,
    "extracted calendar": _event,
}
"""Readers of a whole text."""
