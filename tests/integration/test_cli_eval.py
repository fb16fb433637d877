"""``vectorforge eval`` and ``ask --variant`` as a user runs them, with the local model and a database."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.support.command_line import CommandLine, command_line

FACTS = {
    "refunds": "The finance team approves every refund above 500 euros within two working days.",
    "holidays": "Everybody has thirty days of paid holidays a year.",
    "parking": "Visitors park on the second floor of the garage and get a ticket at the desk.",
    "laptops": "A broken laptop goes to the workshop in Leipzig, which repairs it within a week.",
    "meetings": "The weekly meeting of all departments begins on Tuesday at nine.",
    "canteen": "The canteen serves lunch from noon to two, and soup until four.",
}
QUESTIONS = [
    ("Who approves a refund?", "refunds", "finance team"),
    ("How many days of holidays do we have?", "holidays", "thirty"),
    ("Where do visitors park their cars?", "parking", "second floor"),
    ("Who repairs my notebook?", "laptops", "workshop in Leipzig"),
    ("When is the weekly meeting?", "meetings", "Tuesday"),
    ("When can I have lunch?", "canteen", "noon"),
]


@pytest.fixture(scope="module")
def vectorforge(private_dir: Callable[[str], Path]) -> Iterator[CommandLine]:
    folder = private_dir("eval")
    (folder / "guides").mkdir()
    for name, text in FACTS.items():
        (folder / "guides" / f"{name}.md").write_text(f"# {name.title()}\n\n{text}\n")
    rows = [
        {"question": q, "relevant": [f"guides/{source}.md"], "answers": [a]} for q, source, a in QUESTIONS
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    worse = {"worse": {"min_score": 0.99}, "terse": {"top_k": 2}}
    with command_line(folder, {"VECTORFORGE_VARIANTS": json.dumps(worse)}) as cli:
        assert cli.json("ingest", "guides", "-c", "guides")["succeeded"] == len(FACTS)
        yield cli


def test_worse_configuration_exits_with_1_and_names_the_measure(vectorforge: CommandLine) -> None:
    common = ("eval", "questions.jsonl", "-c", "guides", "--retrieval-only")
    good = vectorforge(*common, "--save-baseline", "before.json")
    assert "recall@10\t1.000 [1.000, 1.000]" in good.stdout
    assert "Only 6 questions: the intervals are unreliable." in good.stderr
    assert "\x1b" not in good.stdout + good.stderr

    same = vectorforge(*common, "--baseline", "before.json")
    assert "regression" not in same.stdout + same.stderr
    worse = vectorforge(*common, "--variant", "worse", "--baseline", "before.json", code=1)
    row = next(line for line in worse.stdout.splitlines() if line.startswith("recall@10\tworse - default"))
    assert row.endswith("-1.000 [-1.000, -1.000]\t0.01\tworse: regression")
    assert "Regression: recall@10 of worse differs from default (baseline) by -1.000" in worse.stderr
    # A maximal tolerance accepts it.
    vectorforge(*common, "--variant", "worse", "--baseline", "before.json", "--tolerance", "1")


@pytest.mark.parametrize("option", ["--report", "--save-baseline"])
def test_unwritable_output_is_rejected_before_any_question_is_asked(
    vectorforge: CommandLine, option: str
) -> None:
    before = vectorforge.json("stats")["totals"]["queries"]
    for path in ("nowhere/out", "guides", "questions.jsonl/out"):
        refused = vectorforge("eval", "questions.jsonl", "-c", "guides", option, path, code=2).stderr
        assert f"error: {path} cannot be written; {option} names a file in an existing folder." in refused
    assert vectorforge.json("stats")["totals"]["queries"] == before


def test_variants_are_compared_with_the_first_and_reported(vectorforge: CommandLine) -> None:
    found = vectorforge.json(
        "eval", "questions.jsonl", "-c", "guides", "--variant", "default", "--variant", "worse",
        "--report", "out.html", "--tolerance", "latency_p95_ms=60000", code=1,
    )  # fmt: skip
    assert found["questions"] == 6
    assert found["figures"]["default"]["answer_containment"]["value"] > 0.8  # quoted by no model
    assert found["figures"]["default"]["citation_precision"]["value"] > 0.8
    assert found["figures"]["worse"]["answer_containment"]["value"] == 0
    assert {"recall@10", "ndcg@10", "mrr@10", "answer_containment"} <= set(found["regressions"])
    assert not {"latency_p95_ms", "tokens"} & set(found["regressions"])
    latency = next(d for d in found["differences"] if d["measure"] == "latency_p95_ms")
    assert latency["tolerance"] == 60_000
    page = (vectorforge.folder / "out.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "Who repairs my notebook?" in page


MISLEADING = [
    ("Who fixes a notebook computer, and is it done by Tuesday?", "laptops"),
    ("Where may guests leave their cars at noon?", "parking"),
    ("What food is there in the garage's cafeteria?", "canteen"),
]
"""Queries whose words are in other guides."""


def test_search_modes_are_evaluated_separately(vectorforge: CommandLine) -> None:
    rows = [{"question": text, "relevant": [f"guides/{source}.md"]} for text, source in MISLEADING]
    lines = [json.dumps(row) for row in rows]
    (vectorforge.folder / "misleading.jsonl").write_text("\n".join(lines))
    common = ("eval", "misleading.jsonl", "-c", "guides", "--retrieval-only")
    figures = {
        mode: vectorforge.json(*common, "--mode", mode)["figures"]["default"]["mrr@10"]["value"]
        for mode in ("hybrid", "dense", "lexical")
    }
    assert figures["lexical"] < figures["hybrid"] <= figures["dense"]


def test_dense_weight_is_tuned_shown_and_stored(vectorforge: CommandLine) -> None:
    rows = [(f"{text} ({n})", source) for n in range(8) for text, source in MISLEADING]
    lines = [json.dumps({"question": text, "relevant": [f"guides/{source}.md"]}) for text, source in rows]
    (vectorforge.folder / "many.jsonl").write_text("\n".join(lines))
    common = ("eval", "many.jsonl", "-c", "guides", "--tune", "--cutoff", "1")
    vectorforge("collections", "set", "guides", "--dense-weight", "0")
    found = vectorforge.json(*common)
    assert (found["questions"], found["current"], found["saved"]) == (24, 0, False)
    assert [point["dense_weight"] for point in found["curve"]] == [n / 10 for n in range(11)]
    curve = {point["dense_weight"]: point["ndcg"] for point in found["curve"]}
    assert curve[0] < curve[found["best"]] == max(curve.values())
    shown = vectorforge(*common, "--save")
    assert f"Saved: guides has the weight {found['best']:g}." in shown.stderr + shown.stdout
    again = vectorforge.json(*common, "--save")
    assert (again["current"], again["saved"]) == (found["best"], False)
    assert (
        "at least 20 questions"
        in vectorforge("eval", "questions.jsonl", "-c", "guides", "--tune", code=2).stderr
    )
    vectorforge("collections", "set", "guides", "--dense-weight", "0.5")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("questions.jsonl", "-c", "guides", "--variant", "best"), "there are: default, precise"),
        (("questions.jsonl", "-c", "guides", "--tolerance", "recall=0.1"), "no measure recall; measures"),
        (("questions.jsonl", "-c", "guides", "--tolerance=-1"), "--tolerance must be a number of 0 or more"),
        (("questions.jsonl", "-c", "guides", "--baseline", "none.json"), "none.json cannot be read"),
        (("guides", "-c", "guides"), "cannot be read"),
        (("nothing.jsonl", "-c", "guides"), "does not exist"),
    ],
)
def test_invalid_eval_arguments_exit_with_2(
    vectorforge: CommandLine, arguments: tuple[str, ...], text: str
) -> None:
    assert text in vectorforge("eval", *arguments, "--retrieval-only", code=2).stderr


def test_ask_with_variant_applies_it(vectorforge: CommandLine) -> None:
    plain = vectorforge.json("ask", "Who approves a refund?", "-c", "guides")
    assert plain["variant"] is None
    assert len(plain["sources"]) > 3
    terse = vectorforge.json("ask", "Who approves a refund?", "-c", "guides", "--variant", "terse")
    assert (terse["variant"], len(terse["sources"])) == ("terse", 2)
    answer = vectorforge.json(
        "ask", "Who approves a refund?", "-c", "guides", "--variant", "terse", "-k", "3"
    )
    assert len(answer["sources"]) == 3
    refused = vectorforge("ask", "Who?", "-c", "guides", "--variant", "best", code=2)
    assert "default, precise, comprehensive, worse, terse" in refused.stderr


def test_logged_query_is_asked_again_with_another_variant(vectorforge: CommandLine) -> None:
    asked = vectorforge.json("ask", "Who approves a refund?", "-c", "guides")
    shown = vectorforge.json("replay", asked["id"], "--against", "terse")
    assert [change["kind"] for change in shown["replay"]["changes"]] == ["not_called"]
    assert (shown["logged"]["answer"], shown["again"]["variant"]) == (asked["answer"], "terse")
    assert (shown["logged"]["chunks"], shown["again"]["chunks"], shown["again"]["same_chunks"]) == (5, 2, 2)
    assert shown["again"]["id"] != asked["id"]
    printed = vectorforge("replay", asked["id"], "--against", "worse").stdout
    assert "The request cannot be rebuilt." in printed
    assert "--- logged answer\n+++ new answer" in printed
    assert "The finance team approves" in next(
        line for line in printed.splitlines() if line.startswith("-The")
    )
    assert "not found" in vectorforge("replay", str(UUID(int=0)), code=2).stderr
