"""Queries on the command line: ``search``, ``ask``, conversations, and models with a key."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from tests.support.command_line import CommandLine, Finished
from tests.support.formats.located import price_list, three_slides, two_pages
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Failure
from vectorforge.threads import LoopThread


def test_ask_and_search_with_json_name_their_sources(handbook: CommandLine) -> None:
    answer = handbook.json("ask", "Who approves a refund?", "-c", "handbook")
    assert "finance team" in answer["answer"]
    cited = answer["citations"][0]["source_number"]
    source = answer["sources"][cited - 1]["document_source"]
    assert source == str((handbook.folder / "handbook.md").resolve())

    found = handbook.json("search", "-", "-c", "handbook", "-k", "1", stdin="days off")
    assert len(found["results"]) == 1
    assert found["results"][0]["metadata"]["team"] == "hr"


def test_ask_and_search_in_pipe_print_plain_text(handbook: CommandLine) -> None:
    shown = handbook("ask", "Who approves a refund?", "-c", "handbook").stdout
    assert "finance team" in shown
    assert "] ./handbook.md" in shown
    lines = handbook("search", "refund", "-c", "handbook").stdout.splitlines()
    assert lines[0].split("\t") == ["rank", "score", "source", "heading", "passage"]
    assert all(line.count("\t") == 4 for line in lines)


def test_ask_and_search_print_the_place_beside_the_source(vectorforge: CommandLine) -> None:
    for file in (two_pages(), three_slides(), price_list()):
        name, collection = file.made.source, file.made.source.partition(".")[0]
        (vectorforge.folder / name).write_bytes(file.made.content)
        vectorforge("ingest", name, "-c", collection)
        answer = vectorforge.json("ask", file.question, "-c", collection)
        places = {citation["location_text"] for citation in answer["citations"]}
        assert file.text in places
        [line] = [
            line
            for line in vectorforge("ask", file.question, "-c", collection).stdout.splitlines()
            if f"] ./{name}" in line
        ]
        assert (f", {file.text}  (" in line) is (places == {file.text})
        found = vectorforge.json("search", file.question, "-c", collection)
        assert found["results"][0]["locations"] == answer["sources"][0]["locations"]
        rows = vectorforge("search", file.question, "-c", collection).stdout.splitlines()
        assert rows[1].split("\t")[2] == f"./{name}, {file.chunk_text}"


def test_ask_with_unreachable_model_names_the_command_that_shows_the_reason(handbook: CommandLine) -> None:
    done = handbook(
        "ask", "Who approves a refund?", "-c", "handbook",
        VECTORFORGE_OPENAI_API_KEY="sk-test", VECTORFORGE_OPENAI_BASE_URL="http://127.0.0.1:9/v1",
        VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER="local",
    )  # fmt: skip
    assert "finance team" in done.stdout
    assert "The model is unavailable; showing the retrieved passages." in done.stderr
    assert "vectorforge providers check" in done.stderr


def test_search_and_ask_with_failing_reranker_warn_and_report_it(handbook: CommandLine) -> None:
    reranker = {"VECTORFORGE_RERANK_URL": "http://127.0.0.1:9/rerank", "VECTORFORGE_RERANK_FORMAT": "tei"}
    failing = replace(handbook, settings=reranker)
    (handbook.folder / "pets.jsonl").write_text('{"id": 1, "text": "cats"}\n{"id": 2, "text": "a cat"}\n')
    handbook("ingest", "pets.jsonl", "-c", "pets")
    question = ("search", "cats", "-c", "pets")
    warning = "The chunks were not reranked: The reranker is unreachable"
    assert f"warning: {warning}" in failing(*question).stderr
    done = failing(*question, "--json")
    assert json.loads(done.stderr)["warning"].startswith(warning)
    assert json.loads(done.stdout)["degraded"] == ["not_reranked"]
    assert handbook.json(*question)["degraded"] == []
    asked = failing("ask", *question[1:], "--json")
    assert json.loads(asked.stderr)["warning"].startswith("The reranker failed")
    assert json.loads(asked.stdout)["degraded"] == ["not_reranked"]


def test_search_and_ask_without_results_exit_with_1(vectorforge: CommandLine) -> None:
    vectorforge("collections", "create", "void")
    assert vectorforge.json("search", "anything", "-c", "void", code=1)["results"] == []
    assert vectorforge.json("ask", "anything", "-c", "void", code=1)["outcome"] == "empty"


def test_ask_for_a_model_without_any_says_that_it_is_ignored(handbook: CommandLine) -> None:
    question = ("ask", "When does the office close?", "-c", "handbook")
    asked = handbook(*question, "--model", "gpt-9")
    assert "warning: No model is configured; model was ignored." in asked.stderr
    assert "ignored" not in handbook(*question).stderr
    assert handbook.json(*question, "--model", "gpt-9")["dropped_parameters"] == ["model"]


def test_ask_with_unknown_provider_exits_with_2(handbook: CommandLine) -> None:
    done = handbook("ask", "Who?", "-c", "handbook", "--provider", "nobody", code=2)
    assert "nobody" in done.stderr


class Model:
    """``ask`` against a vendor's server, which runs in a thread of its own."""

    def __init__(self, cli: CommandLine, server: FakeOpenAI) -> None:
        self._cli = cli
        self.server = server

    def __call__(self, *arguments: str, replies: Sequence[Reply | Failure] = (), code: int = 0) -> Finished:
        self.server.script(*replies)
        done = self._cli(
            "ask", "Who approves?", "-c", "handbook", *arguments, code=code,
            VECTORFORGE_OPENAI_API_KEY=self.server.api_key, VECTORFORGE_OPENAI_BASE_URL=self.server.base_url,
            VECTORFORGE_LLM_MAX_RETRIES="0",
        )  # fmt: skip
        assert self.server.api_key not in done.stdout + done.stderr
        return done


@pytest.fixture
def ask_model(handbook: CommandLine) -> Iterator[Model]:
    server = FakeOpenAI()
    thread = LoopThread(server, name="vendor")
    yield Model(handbook, server)
    thread.close()


def test_ask_with_key_prints_answer_of_model(ask_model: Model) -> None:
    done = ask_model(replies=[Reply(texts=("The finance", " team ", "[Source 1]."))])
    assert done.stdout.splitlines()[0] == "The finance team [Source 1]."
    assert "[1] ./handbook.md" in done.stdout
    assert done.stderr.startswith("openai")


def test_ask_with_conversation_continues_it(ask_model: Model) -> None:  # P9
    replies = [Reply(texts=("The finance team, within 9 days [Source 1].",))]
    err = ask_model("--conversation", "new", replies=replies).stderr
    assert "source 1 does not say what cites it" in err
    conversation = re.findall(r"^Conversation (\S+)$", err, re.MULTILINE)[0]
    arguments = ("--conversation", conversation, "--rewrite", "--json")
    replies = [Reply(texts=("Who approves refunds?",)), Reply(texts=("They do.",))]
    answer = json.loads(ask_model(*arguments, replies=replies).stdout)
    sent = [message["content"] for message in ask_model.server.requests[-1].body["messages"][1:]]
    assert (answer["conversation_id"], answer["rewritten_query"]) == (
        conversation,
        "Who approves refunds?",
    )
    assert sent == ["Who approves?", "The finance team, within 9 days.", "Who approves?"]
    assert "--conversation" in ask_model("--conversation", "nonsense", code=2).stderr


def test_ask_with_effort_prints_the_steps_and_rejects_too_many_intents(ask_model: Model) -> None:
    plan = {"queries": ["who approves refunds"], "read": 0}
    replies = [Reply(texts=(json.dumps(plan),)), Reply(texts=("The finance team [Source 1].",))]
    done = ask_model("--effort", "low", replies=replies)
    assert done.stdout.splitlines()[0] == "The finance team [Source 1]."
    assert "Plan: who approves refunds" in done.stderr
    assert re.search(r"^Search: who approves refunds \(0 new of \d+ passages\)$", done.stderr, re.MULTILINE)
    assert "intents must be at most 4 texts" in ask_model(*["--intent", "refunds"] * 5, code=2).stderr


def test_ask_without_citations_lists_retrieved_passages(ask_model: Model) -> None:
    out = ask_model(replies=[Reply(texts=("Nobody knows.",))]).stdout
    assert "Sources" not in out
    assert "Retrieved passages" in out


def test_ask_with_broken_stream_prints_partial_answer_and_exits_with_3(ask_model: Model) -> None:
    done = ask_model(replies=[Reply(texts=("The finance",), ending="cut")], code=3)
    assert done.stdout == "The finance\n"
    assert done.stderr.splitlines()[-1].startswith("error: ")


def test_ask_with_rejected_key_exits_with_3(ask_model: Model) -> None:
    done = ask_model("--json", replies=[Failure(401)], code=3)
    assert done.stdout == ""
    assert json.loads(done.stderr)["error"]["code"] == "llm_authentication"


def test_ask_with_unknown_model_names_model_and_address_as_causes(ask_model: Model) -> None:
    done = ask_model(replies=[Failure(404)], code=3)
    assert "has no such model, or its address is wrong" in done.stderr
