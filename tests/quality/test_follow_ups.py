"""Follow-up queries about the project's own documentation, without a model's key.

``conversations.jsonl`` has one conversation per line. Each turn after the first has its query, the same as
a standalone query, the page and a text of it that answers them, and a kind: pronoun, ellipsis, comparison,
or topic_change, whose query needs no earlier turn. The earlier turns, with short answers, are its history.
Conversations at odd lines were used to choose the method, those at even lines were not.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from uuid import UUID

import pytest

from tests.quality.documentation import Documentation
from tests.support.http.live_api import settings_for
from vectorforge.bootstrap import Application
from vectorforge.local.laptop import SAMPLE_PREFIX, sample_documents
from vectorforge.pipeline.presets import VECTORFORGE
from vectorforge.pipeline.rag import QueryService
from vectorforge.pipeline.types import HistoryMessage, QueryConfig

pytestmark = pytest.mark.slow

K = 5
LEAST_OF_STANDALONE = 0.85
"""The goal is 0.9; measured on 2026-11-28: 0.88 of the turns chosen on, 0.93 of those held out."""
TOPIC_CHANGE = "topic_change"


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A turn after the first."""

    query: str
    standalone: str
    kind: str
    source: str
    passage: str
    history: Sequence[HistoryMessage]
    held_out: bool


def read_follow_ups() -> list[FollowUp]:
    follow_ups = []
    lines = (Path(__file__).parent / "conversations.jsonl").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        history: list[HistoryMessage] = []
        for turn in json.loads(line)["turns"]:
            if "kind" in turn:
                page = turn["document"] if turn["document"] == "README.md" else f"docs/{turn['document']}"
                text = (
                    turn["query"],
                    turn["standalone"],
                    turn["kind"],
                    SAMPLE_PREFIX + page,
                    turn["passage"],
                )
                follow_ups.append(FollowUp(*text, history=tuple(history), held_out=number % 2 == 0))
            history += (HistoryMessage("user", turn["query"]), HistoryMessage("assistant", turn["answer"]))
    return follow_ups


FOLLOW_UPS = read_follow_ups()


@dataclass(slots=True)
class Found:
    """Presence of the wanted text among the first chunks, by kind of search."""

    standalone: bool
    alone: bool
    joined: bool
    default: bool
    searched: str | None


async def is_found(
    service: QueryService, collection: UUID, wanted: FollowUp, query: str, config: QueryConfig
) -> tuple[bool, str | None]:
    result = await service.dry_run(query, collection, config)
    first = [(s.document_source, " ".join(s.text.split())) for s in result.sources[:K]]
    is_among = any(source == wanted.source and wanted.passage in text for source, text in first)
    return is_among, result.rewritten_query


async def measure(documentation: Documentation) -> list[Found]:
    async with Application.build(settings_for(documentation.database_url)) as application:
        services = application.for_tenant(documentation.tenant)
        collection = documentation.collection.id
        variant, found = services.choose_variant("default"), []
        for one in FOLLOW_UPS:

            async def search(query: str, wanted: FollowUp = one, **config: object) -> tuple[bool, str | None]:
                settings = VECTORFORGE.config(variant, **config)
                return await is_found(services.query_service, collection, wanted, query, settings)

            previous = next(m.content for m in reversed(one.history) if m.role == "user")
            default, searched = await search(one.query, history=one.history)
            found.append(
                Found(
                    standalone=(await search(one.standalone))[0],
                    alone=(await search(one.query, history=one.history, rewrite=False))[0],
                    joined=(await search(f"{previous} {one.query}"))[0],
                    default=default,
                    searched=searched,
                )
            )
        return found


@pytest.fixture(scope="module")
def measured(documentation: Documentation) -> list[Found]:
    found = asyncio.run(measure(documentation))
    print("", *figures(found), sep="\n")  # noqa: T201 - shown with -s, or if a test fails
    return found


def recall(found: Sequence[Found], way: str) -> float:
    return fmean(getattr(one, way) for one in found)


def figures(found: Sequence[Found]) -> list[str]:
    """Return recall at ``K`` by half and kind as rows of Markdown."""
    groups: Mapping[str, list[Found]] = defaultdict(list)
    for wanted, one in zip(FOLLOW_UPS, found, strict=True):
        half = "held out" if wanted.held_out else "chosen on"
        groups[f"{half}, {wanted.kind}"].append(one)
        groups["all topic changes" if wanted.kind == TOPIC_CHANGE else f"{half}, follow-ups"].append(one)
    ways = ("standalone", "alone", "joined", "default")
    rows = ["| turns | number | standalone | query alone | previous turn joined | default |", "|---|" * 6]
    for name, group in sorted(groups.items()):
        rows.append(f"| {name} | {len(group)} | {' | '.join(f'{recall(group, way):.3f}' for way in ways)} |")
    return rows


def test_set_names_passages_of_the_documentation() -> None:
    texts = {source: " ".join(file.read_text("utf-8").split()) for source, file in sample_documents()}
    assert [one.query for one in FOLLOW_UPS if one.passage not in texts[one.source]] == []


# P8
@pytest.mark.parametrize("held_out", [False, True])
def test_follow_ups_find_nearly_as_much_as_standalone_queries(measured: list[Found], held_out: bool) -> None:
    pairs = [
        (wanted, one)
        for wanted, one in zip(FOLLOW_UPS, measured, strict=True)
        if wanted.kind != TOPIC_CHANGE and wanted.held_out == held_out
    ]
    found = [one for _, one in pairs]
    lost = [
        f"{wanted.query} -> {one.searched}" for wanted, one in pairs if one.standalone and not one.default
    ]
    assert recall(found, "default") >= LEAST_OF_STANDALONE * recall(found, "standalone"), lost
    assert recall(found, "default") > recall(found, "joined") > recall(found, "alone"), lost


def test_history_hurts_no_change_of_topic(measured: list[Found]) -> None:
    lost = [
        f"{wanted.query} -> {one.searched}"
        for wanted, one in zip(FOLLOW_UPS, measured, strict=True)
        if wanted.kind == TOPIC_CHANGE and one.alone and not one.default
    ]
    assert lost == []
