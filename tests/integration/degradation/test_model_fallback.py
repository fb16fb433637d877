"""Fallback from a failed model to another."""

from typing import Any

import pytest

from tests.integration.degradation.conftest import BROKEN, QUESTION, RAG, Start
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Behaviour, Failure


@pytest.mark.parametrize("behaviour", BROKEN)
async def test_failed_provider_falls_back_to_another(
    start: Start, behaviour: Behaviour
) -> None:  # faults 2, 3, 12
    here = await start(("anthropic:claude-next",))
    here.first.unscripted = behaviour
    events = await here.stream()
    assert [e.name for e in events[:3]] == ["meta", "sources", "degraded"]
    assert events[0].data["provider"] == "openai"
    degraded = events[2].data
    assert (degraded["step"], degraded["provider"], degraded["model"]) == (
        "provider",
        "anthropic",
        "claude-next",
    )
    assert degraded["extractive"] is False
    assert (events[-1].name, events[-1].data["degraded"]) == ("done", ["provider"])
    assert here.second.bodies[-1]["model"] == "claude-next"
    row = await here.row(events[0].data["request_id"])
    assert (row["degraded"], row["provider"], row["outcome"]) == (["provider"], "anthropic", "answered")
    assert here.counted("provider") == 1
    whole = await here.ask(query="And what of the chain?")
    assert (whole["degraded"], whole["provider"]) == (["provider"], "anthropic")


async def test_unreachable_provider_falls_back_to_another(start: Start) -> None:  # fault 3
    here = await start(("anthropic",))
    await here.first.__aexit__()
    answer = await here.ask()
    assert (answer["degraded"], answer["provider"]) == (["provider"], "anthropic")


@pytest.mark.parametrize("buffered", [True, False])
async def test_silent_provider_leaves_time_for_fallback(start: Start, buffered: bool) -> None:
    here = await start(("anthropic",), query_timeout_s=8)  # fault 5
    here.first.unscripted = Reply(texts=(), ending="stall")
    if buffered:
        answer = await here.ask()
        assert (answer["degraded"], answer["provider"]) == (["provider"], "anthropic")
    else:
        events = await here.stream()
        assert (events[2].data["step"], events[2].data["reason"]) == ("provider", "llm_timeout")
        assert events[-1].name == "done"


async def test_fallback_answer_is_not_cached(start: Start) -> None:  # C21
    here = await start(("anthropic",))
    here.first.script(Failure(500))
    here.second.unscripted = here.first.unscripted = Reply(texts=("Let the dough rise for two hours.",))
    assert (await here.ask())["provider"] == "anthropic"
    again = await here.ask()
    assert (again["cached"], again["provider"], again["degraded"]) == (False, "openai", [])
    assert (await here.ask())["cached"] is True


async def test_requested_provider_is_not_replaced(start: Start) -> None:
    here = await start(("anthropic",))
    here.first.unscripted = Failure(500)
    answer = await here.ask(provider="openai")
    assert answer["degraded"] == ["passages"]  # its documents' text is sent to no other vendor
    assert here.second.requests == []


@pytest.mark.parametrize("failure", [Failure(401), Failure(403), Failure(400), Failure(404)])
async def test_rejected_key_or_request_does_not_fall_back(start: Start, failure: Failure) -> None:  # fault 4
    here = await start(("anthropic",))
    here.first.unscripted = failure
    response = await here.client.post(RAG, json=QUESTION)
    assert response.status_code == 502
    assert here.first.api_key not in response.text
    assert len(here.first.requests) == 1
    assert here.second.requests == []


@pytest.mark.parametrize("ending", ["eof", "cut", "error"])
async def test_stream_failure_after_first_token_does_not_fall_back(
    start: Start, ending: Any
) -> None:  # faults 7-9
    here = await start(("anthropic",))
    here.first.unscripted = Reply(ending=ending)
    events = await here.stream()
    assert (events[-1].name, "degraded" in [e.name for e in events]) == ("error", False)
    assert events[-1].data["partial_answer"] == "The answer is 42 [Source 1]."
    assert here.second.requests == []
    assert (await here.row(events[0].data["request_id"]))["degraded"] == []


async def test_repeatedly_failing_model_opens_the_circuit(start: Start) -> None:
    here = await start(("anthropic",))
    here.first.unscripted = Failure(500)
    for number in range(8):
        answer = await here.ask(query=f"Dough number {number}?")
        assert answer["provider"] == "anthropic"
    assert len(here.first.requests) == 5  # VECTORFORGE_LLM_CIRCUIT_FAILURES
    events = await here.stream(query="Dough number 9?")
    assert events[2].data["reason"] == "llm_circuit_open"
