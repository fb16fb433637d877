"""Sub-queries by rules, and those in the plan of a model."""

import json

import pytest

from vectorforge.pipeline.planning.planner import PlanError, checked, parse_plan, split
from vectorforge.pipeline.step_types import MAX_SUB_QUERIES, MAX_SUB_QUERY_CHARS


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ("What is the license? Which version do I need?", ["What is the license", "Which version do I need"]),
        (
            "How long is a form valid and who may use it?",
            ["How long is a form valid", "who may use it? How long is a form valid"],
        ),
        ("What is the difference between HNSW and IVF?", ["HNSW", "IVF"]),
        ("Compare the sauna with the pool in price", ["the sauna price", "the pool in price"]),
        ("How does a dry run differ from a query?", ["a dry run", "a query"]),
        ("HNSW vs. exact scans", ["HNSW", "exact scans"]),
        ("Should I use keys rather than tokens?", ["Should I use keys", "tokens"]),
        (
            "What are the limits of documents and chunks?",
            ["What are the limits of documents", "limits of chunks"],
        ),
        ("Which PostgreSQL, Python and Node do I need?", ["Which PostgreSQL", "Python", "Node do I need"]),
        ("Was ist der Unterschied zwischen Rollen und Rechten?", ["Rollen", "Rechten"]),
        (
            "Wie hoch ist das Limit und wann wird es erneuert?",
            ["Wie hoch ist das Limit", "wann wird es erneuert"],
        ),
        ("Wann öffnet der Laden? Was kostet die Milch?", ["Wann öffnet der Laden", "Was kostet die Milch"]),
        ("Who is Ada?", []),
        ("Retries between 1 and 5", []),
        ("and", []),
        ("", []),
        ("What is A and B? " * 200, []),
    ],
)
def test_query_is_split_by_rules(query: str, parts: list[str]) -> None:
    found = split(query)
    assert len(found) == len(parts)
    assert all(part in text for part, text in zip(parts, found, strict=True)), found


def test_clause_without_subject_is_joined_by_the_first_clause() -> None:
    _, second = split("How many texts does Titan embed, and which dimensions does it support?")
    assert second == "which dimensions does it support? How many texts does Titan embed"


def test_sub_queries_are_bounded_and_distinct() -> None:
    parts = [
        "  Kettle\x00\nprice ",
        "kettle price",
        "Tea?",
        "the",
        "x" * (MAX_SUB_QUERY_CHARS + 1),
        "a1",
        "b2",
        "c3",
    ]
    assert checked(parts, "tea") == ["Kettle price", "a1", "b2", "c3"]
    assert len(checked([f"query {n}" for n in range(9)], "other")) == MAX_SUB_QUERIES


@pytest.mark.parametrize("fenced", ["{}", "```json\n{}\n```", "  ```\n{}```  "])
def test_plan_is_read_from_json_and_from_a_code_fence(fenced: str) -> None:
    text = json.dumps({"queries": ["kettle price", "kettle weight"], "read": 2, "tenant": "b"})
    plan = parse_plan(fenced.replace("{}", text), "kettle", 3)
    assert (plan.queries, plan.read) == (["kettle price", "kettle weight"], 2)


@pytest.mark.parametrize("read", [0, -1, 4, 13, True, "1", None, 1.0, 10**30])
def test_plan_reads_only_documents_of_given_chunks(read: object) -> None:
    assert parse_plan(json.dumps({"queries": [], "read": read}), "kettle", 3).read == 0


@pytest.mark.parametrize(
    "text", ["", "no", "[]", '{"queries": "a"}', "{}", '{"queries": ["a"]', "[" * 100_000, '"queries"']
)
def test_other_text_is_no_plan(text: str) -> None:
    with pytest.raises(PlanError):
        parse_plan(text, "kettle")


def test_items_of_a_plan_that_are_no_queries_are_left_out() -> None:
    queries = [None, 3, {"query": "x"}, ["y"], "", "KETTLE", "kettle price", "x" * 1000]
    assert parse_plan(json.dumps({"queries": queries}), "kettle").queries == ["kettle price"]
