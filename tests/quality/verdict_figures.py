"""Print how often each kind of sentence is marked supported, unsupported and unchecked.

``python -m tests.quality.verdict_figures FOLDER`` reads corpora as in docs/use/answer-quality.md; without a
folder it prints the figures of the project's own documents. ``--wrong KIND`` lists misjudged cases.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.quality.verdict_cases import (
    CHANGES,
    GERMAN_CHANGES,
    Case,
    change_number,
    changed_cases,
    paraphrase_cases,
)
from vectorforge.ingestion.chunk import chunk_text
from vectorforge.llm.providers.quotations import split
from vectorforge.llm.providers.words import terms

ROOT = Path(__file__).parents[2]
OWN_PAGES = ("docs/use", "docs/operate", "docs/design")
PER_KIND = 60
ALLOWED = {True: ("supported", "unchecked"), False: ("unsupported",)}
SINGLE_FACTS = frozenset(CHANGES)
"""Kinds with a single fact changed; of them precision and recall are computed."""


def own_documents() -> list[list[str]]:
    """Return the chunks of the project's documentation by page."""
    pages = sorted(page for folder in OWN_PAGES for page in (ROOT / folder).glob("*.md"))
    return [[c.text for c in chunk_text(page.read_text(encoding="utf-8"))] for page in pages]


def corpus(folder: Path, name: str) -> list[list[str]]:
    """Return the chunks of a corpus by document."""
    lines = (folder / name / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    return [[chunk.text for chunk in chunk_text(json.loads(line)["text"])] for line in lines]


def own_cases(per_kind: int = PER_KIND) -> Iterator[Case]:
    """Yield the cases of the project's own documents, without the unseen paraphrases."""
    yield from changed_cases(own_documents(), CHANGES, per_kind)
    yield from paraphrase_cases("tuning")


def translations(folder: Path, language: str) -> Iterator[Case]:
    """Yield sentences of a translation that cite the English paragraphs of the same document."""
    documents = zip(corpus(folder, "xquad_en"), corpus(folder, f"xquad_{language}"), strict=True)
    for english, translated in documents:
        for text in (piece.text for piece in split(translated[0])[:3] if piece.kind == "prose"):
            yield Case(f"translation {language}", True, " ".join(text.split()), english[0])


def reference_answers(folder: Path) -> Iterator[Case]:
    """Yield sentences of answers that a model wrote, with the most similar chunk of a relevant document."""
    lines = (folder / "anthropic_docs" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    texts = {row["doc_id"]: row["text"] for row in map(json.loads, lines)}
    relevant: dict[str, list[str]] = {}
    for line in (folder / "anthropic_docs" / "qrels.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        relevant.setdefault(row["query_id"], []).append(texts[row["doc_id"]])
    for line in (folder / "anthropic_docs" / "queries.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        chunks = [chunk.text for text in relevant[row["query_id"]] for chunk in chunk_text(text)]
        for piece in split(row["reference_answer"]):
            best = max(chunks, key=lambda chunk: len(terms(piece.text) & terms(chunk)))
            yield Case("reference answer", True, piece.text, best)


def corpus_cases(folder: Path) -> dict[str, list[Case]]:
    """Return the cases of each corpus."""
    found = {
        name: list(changed_cases(corpus(folder, name), CHANGES, PER_KIND))
        for name in ("xquad_en", "covidqa", "anthropic_docs")
    }
    found["xquad_de"] = list(changed_cases(corpus(folder, "xquad_de"), GERMAN_CHANGES, PER_KIND))
    for name in ("xquad_zh", "xquad_ar"):
        found[name] = list(changed_cases(corpus(folder, name), {"number": change_number}, PER_KIND))
    found["other texts"] = [*reference_answers(folder)]
    for language in ("de", "zh", "ar"):
        found["other texts"] += translations(folder, language)
    return found


def report(title: str, cases: Sequence[Case]) -> str:
    """Return the figures of some cases as a Markdown table."""
    began = time.perf_counter()
    judged = [(case, case.verdict()) for case in cases]
    each_ms = (time.perf_counter() - began) * 1000 / max(1, len(cases))
    counts: dict[str, Counter[str]] = {}
    for case, verdict in judged:
        counts.setdefault(case.kind, Counter())[verdict] += 1
    lines = [f"## {title}", "", "| kind | n | supported | unsupported | unchecked |", "|---|---|---|---|---|"]
    for kind, found in counts.items():
        shares = (f"{found[v] / found.total():.0%}" for v in ("supported", "unsupported", "unchecked"))
        lines.append(f"| {kind} | {found.total()} | {' | '.join(shares)} |")
    precision, recall = precision_and_recall(judged)
    total = f"{len(cases)} cases, precision {precision:.3f}, recall {recall:.3f}, {each_ms:.2f} ms each"
    return "\n".join([*lines, "", total, "", ""])


def precision_and_recall(judged: Iterable[tuple[Case, str]]) -> tuple[float, float]:
    """Return both of "unsupported" for single-fact changes, against all true sentences."""
    judged = list(judged)
    wrong = [verdict for case, verdict in judged if case.kind in SINGLE_FACTS]
    false = sum(verdict == "unsupported" for case, verdict in judged if case.is_true)
    hits = wrong.count("unsupported")
    return hits / max(1, hits + false), hits / max(1, len(wrong))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--unseen", action="store_true")
    parser.add_argument("--wrong")
    parser.add_argument("--only")
    arguments = parser.parse_args()
    parts = {"own documents": list(own_cases())}
    if arguments.unseen:
        parts |= {f"{name} paraphrases": list(paraphrase_cases(name)) for name in ("unseen", "fresh")}
    if arguments.folder:
        parts |= corpus_cases(arguments.folder)
    for title, cases in parts.items():
        if arguments.only and arguments.only != title:
            continue
        sys.stdout.write(report(title, cases))
        for case in cases if arguments.wrong else ():
            verdict = case.verdict()
            if case.kind.startswith(arguments.wrong) and verdict not in ALLOWED[case.is_true]:
                sys.stdout.write(f"[{verdict}] {case.text}\n    {' '.join(case.chunk.split())}\n\n")


if __name__ == "__main__":
    main()
