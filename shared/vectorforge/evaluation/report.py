"""Report of an evaluation as one self-contained HTML file."""

from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from pathlib import Path

from vectorforge.evaluation import plots
from vectorforge.evaluation.comparison import Column, Difference, Summary, paired, write_file
from vectorforge.evaluation.metrics import Measure, change, figure
from vectorforge.evaluation.questions import Question
from vectorforge.evaluation.run import Outcome, Run
from vectorforge.evaluation.scoring import Scored

_WORST = 20
"""Worst questions listed for each run."""
_STRIPS = ("ndcg", "answer_in_passages", "answer_containment", "citation_precision")
"""Columns whose differences are plotted for every question."""
_QUALITY = (
    *("answer_containment", "ndcg", "answer_in_passages", "citation_precision", "recall"),
    *("refusal", "correction", "disagreement"),
)
_SHOWN_CHARS = 300


def write_report(path: Path, outcome: Outcome, summary: Summary) -> None:
    """Write the page to a file, and replace an existing one.

    Raises:
        InvalidInputError: The file cannot be written.
    """
    write_file(path, render_report(outcome, summary), field="--report")


def render_report(outcome: Outcome, summary: Summary) -> str:
    """Render the page. All texts of documents, questions and models are escaped."""
    style = files("vectorforge.evaluation").joinpath("report.css").read_text(encoding="utf-8")
    sections = [
        _head(outcome),
        _verdict(summary),
        _table(summary),
        _bars(summary),
        _differences(summary),
        _strips(outcome, summary),
        *(_worst(run) for run in outcome.runs),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Evaluation of {escape(outcome.collection)}</title><style>{style}</style></head>"
        f"<body>{''.join(sections)}</body></html>\n"
    )


def _head(outcome: Outcome) -> str:
    plan = outcome.plan
    mode = "search only" if plan.retrieval_only else "search and answers"
    written = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"<h1>Evaluation of {escape(outcome.collection)}</h1>"
        f'<p class="quiet">{len(plan.questions.questions)} questions of {escape(plan.questions.name)}, '
        f"{mode}, first {plan.k} ranks, {plan.parallel} at a time. {written}.</p>"
    )


def _verdict(summary: Summary) -> str:
    if not summary.differences:
        return '<p class="verdict">Nothing to compare with: one variant, and no baseline.</p>'
    if not summary.regressions:
        return '<p class="verdict">No regression.</p>'
    items = "".join(
        f"<li><b>{escape(d.measure.name)}</b>: {escape(d.candidate)} differs from {escape(d.reference)} by "
        f"{change(d.estimate, d.measure.unit)}</li>"
        for d in summary.regressions
    )
    return f'<div class="verdict bad"><b>{len(summary.regressions)} regressions</b><ul>{items}</ul></div>'


def _table(summary: Summary) -> str:
    names = list(summary.figures)
    rows = []
    for measure in summary.measures:
        estimates = (summary.figures[name].get(measure.name) for name in names)
        cells = "".join(f"<td>{figure(e, measure.unit) if e else '–'}</td>" for e in estimates)
        rows.append(f"<tr><th>{escape(measure.name)}</th>{cells}</tr>")
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    return (
        '<h2>Figures</h2><p class="quiet">In brackets: 95 % confidence intervals.</p>'
        f'<div class="wide"><table><tr><th>measure</th>{head}</tr>{"".join(rows)}</table></div>'
    )


def _bars(summary: Summary) -> str:
    drawn = []
    for measure in summary.measures:
        figures = [
            (n, of_run[measure.name]) for n, of_run in summary.figures.items() if measure.name in of_run
        ]
        if any(estimate.high for _, estimate in figures):
            drawn.append(_figure(measure.name, measure.meaning, plots.bars(measure, figures)))
    return f'<h2>Bars</h2><div class="plots">{"".join(drawn)}</div>'


def _differences(summary: Summary) -> str:
    if not summary.differences:
        return ""
    drawn = []
    for measure in summary.measures:
        of_measure = [d for d in summary.differences if d.measure == measure]
        if any(d.estimate.low or d.estimate.high for d in of_measure):
            plot = plots.differences(measure, [(f"{d.candidate}", d.estimate) for d in of_measure])
            references = ", ".join(dict.fromkeys(d.reference for d in of_measure))
            drawn.append(_figure(measure.name, f"against {references}", plot))
    rows = "".join(
        f"<tr><th>{escape(d.measure.name)}</th><td>{escape(d.candidate)} – {escape(d.reference)}</td>"
        f"<td>{change(d.estimate, d.measure.unit)}</td><td>{d.estimate.questions}</td>"
        f"<td>{_word(d)}</td></tr>"
        for d in summary.differences
    )
    return (
        '<h2>Differences</h2><p class="quiet">Between answers to the same questions, with intervals. '
        "Shaded: what is tolerated.</p>"
        f'<div class="plots">{"".join(drawn)}</div><div class="wide"><table><tr><th>measure</th>'
        f"<th>difference</th><th>change</th><th>questions</th><th>verdict</th></tr>{rows}</table></div>"
    )


def _strips(outcome: Outcome, summary: Summary) -> str:
    texts = {s.question.id: s.question.text for s in outcome.runs[0].scored}
    drawn = [
        _figure(f"{measure.name}: {candidate.name} – {reference.name}", "each line is a question", plot)
        for measure in summary.measures
        if measure.column in _STRIPS
        for candidate, reference in summary.pairs
        if (plot := _strip(measure, candidate, reference, texts))
    ]
    return f'<h2>Question by question</h2><div class="plots">{"".join(drawn)}</div>' if drawn else ""


def _strip(measure: Measure, candidate: Column, reference: Column, texts: dict[str, str]) -> str:
    changes = [(texts.get(q, q), c - r) for q, c, r in paired(candidate, reference, measure.column)]
    return plots.strips(measure.name, changes) if any(value for _, value in changes) else ""


def _worst(run: Run) -> str:
    """Return the worst questions by the mean of their quality, failed ones first, without perfect ones."""
    worst = [scored for scored in sorted(run.scored, key=_mean)[:_WORST] if _mean(scored) < 1]
    items = "".join(map(_question, worst))
    return f"<h2>Worst questions of {escape(run.variant)}</h2>{items}" if worst else ""


def _question(scored: Scored) -> str:
    question = scored.question
    expected = "".join(f"<li>{escape(text)}</li>" for text in describe(question))
    passages = "".join(_passages(scored)) or "<li>nothing</li>"
    answer = f"<h3>Answered</h3><p>{escape(scored.answer)}</p>" if scored.answer else ""
    failure = f'<p class="bad-text">{escape(scored.error)}</p>' if scored.error else ""
    values = ", ".join(
        f"{escape(name)} {value:.2f}"
        for name, value in scored.values.items()
        if name not in ("latency_ms", "failed", "degraded", "tokens", "cost_usd")
    )
    return (
        f'<details><summary>{escape(question.text)} <span class="quiet">({values})</span></summary>{failure}'
        f'<h3>Expected</h3><ul class="found">{expected}</ul>'
        f'<h3>Found</h3><ol class="found">{passages}</ol>{answer}</details>'
    )


def _passages(scored: Scored) -> Iterator[str]:
    for chunk in scored.chunks:
        mark = '<b class="good-text">✓ relevant</b>' if chunk.relevant else '<span class="quiet">–</span>'
        heading = f" › {escape(chunk.heading)}" if chunk.heading else ""
        yield (
            f"<li>{mark} {escape(chunk.source)}{heading} "
            f'<span class="quiet">({chunk.score:.3f})</span><br>{escape(chunk.snippet)}</li>'
        )


def _figure(title: str, meaning: str, svg: str) -> str:
    return (
        f"<figure><figcaption><b>{escape(title)}</b> "
        f'<span class="quiet">{escape(meaning)}</span></figcaption>{svg}</figure>'
    )


def _word(difference: Difference) -> str:
    if difference.is_regression:
        return '<span class="bad-text">regression</span>'
    return '<span class="good-text">better</span>' if difference.verdict == "better" else difference.verdict


def describe(question: Question) -> Iterator[str]:
    """Yield the expected reaction, answers, documents and chunks, a line for each."""
    if question.expect != "answer":
        yield f"Expected: a {question.expect}"
    if question.answers:
        yield "Answer: " + " / ".join(question.answers)
    if question.reference:
        yield "Reference: " + question.reference[:_SHOWN_CHARS]
    for relevant in question.relevant:
        if relevant.text is not None:
            yield f"Passage: {relevant.text[:_SHOWN_CHARS]}"
        elif relevant.start is not None:
            yield f"Source: {relevant.source}, characters {relevant.start} to {relevant.end}"
        else:
            yield f"Source: {relevant.source}"


def _mean(scored: Scored) -> float:
    if scored.error is not None:
        return -1.0
    values = [scored.values[name] for name in _QUALITY if name in scored.values]
    return sum(values) / len(values) if values else 1.0
