"""Answers as JSON: the readable text of them while they come in, and at the end what else they say."""

import json
import logging
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal, TypeAlias
from urllib.parse import urldefrag

from vectorforge.llm.types import ProviderCapability
from vectorforge.pipeline.answer_json import AnswerReader
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import StructuredAnswer
from vectorforge.types import RetrievedChunk

logger = logging.getLogger(__name__)

Confidence: TypeAlias = Literal["high", "medium", "low"]
_CONFIDENCES: Mapping[Any, Confidence] = {"high": "high", "medium": "medium", "low": "low"}


async def read_answer(run: QueryRun, texts: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """The answer's pieces for a reader; sets ``run.structured`` when the door asks for JSON.

    Args:
        run: Whose preset asks the model for JSON.
        texts: What the model writes; closed with this generator.
    """
    async with aclosing(texts):
        if _quotes(run):
            async for text in texts:
                yield text
            return
        reader = AnswerReader()
        run.structured = StructuredAnswer()  # what can be said if the answer breaks off
        async for text in texts:
            if readable := reader.feed(text):
                yield readable
        if readable := reader.finish():
            yield readable
        run.structured = structured_answer(reader.object(), run.used)


def structured_answer(said: Mapping[str, Any] | None, used: Sequence[RetrievedChunk]) -> StructuredAnswer:
    """What a model said beside its answer, as far as it can be used.

    Args:
        said: Its JSON object; what is missing there gets the defaults; None, when it wrote none, all of them.
        used: The passages it was given: only their sources count as sources.
    """
    if said is None:
        logger.error("The model's answer is no JSON object; it is taken as text.")
        return StructuredAnswer()
    named = list(_texts(said.get("sources"), "url"))
    known = _known_sources(used)
    found = [known.get(_normalised(url)) for url in named]
    return StructuredAnswer(
        examples=tuple(_texts(said.get("examples"), "code")),
        source_urls=tuple(dict.fromkeys(url for url in found if url is not None)),
        dropped_source_urls=found.count(None),
        confidence=_confidence(said.get("confidence")),
    )


def _quotes(run: QueryRun) -> bool:
    """Whether the provider quotes the passages; then nobody reads the prompt that asks for JSON."""
    return run.provider is not None and ProviderCapability.EXTRACTIVE in run.provider.capabilities


def _known_sources(used: Sequence[RetrievedChunk]) -> dict[str, str]:
    """Sources by their normalised spelling; the best passage's spelling wins."""
    return {_normalised(chunk.document_source): chunk.document_source for chunk in reversed(used)}


def _normalised(url: str) -> str:
    """A source without what models add or lose: brackets around it, a fragment, a slash at its end."""
    return urldefrag(url.strip().strip("<>")).url.rstrip("/")


def _texts(value: Any, key: str) -> Iterator[str]:
    """The texts of a list whose items should be texts, but may be objects with one under ``key``."""
    for item in value if isinstance(value, list) else [value]:
        text = item.get(key, item) if isinstance(item, dict) else item
        if isinstance(text, str) and text:
            yield text
        elif text:
            yield json.dumps(text, ensure_ascii=False)


def _confidence(said: Any) -> Confidence:
    return _CONFIDENCES.get(said.strip().lower() if isinstance(said, str) else None, "low")
