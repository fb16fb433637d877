"""Queries on the command line: ``search``, ``ask``, conversations, and models with a key."""

import asyncio
import json
import re

from tests.support.command_line import VECTORFORGE, CommandLine
from tests.support.formats.located import price_list, three_slides, two_pages
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Failure


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
    done = handbook.process(
        "ask", "Who approves a refund?", "-c", "handbook",
        VECTORFORGE_OPENAI_API_KEY="sk-test", VECTORFORGE_OPENAI_BASE_URL="http://127.0.0.1:9/v1",
        VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER="local",
    )  # fmt: skip
    assert "finance team" in done.stdout
    assert "The model is unavailable; showing the retrieved passages." in done.stderr
    assert "vectorforge providers check" in done.stderr


def test_search_and_ask_without_results_exit_with_1(vectorforge: CommandLine) -> None:
    vectorforge("collections", "create", "void")
    assert vectorforge.json("search", "anything", "-c", "void", code=1)["results"] == []
    assert vectorforge.json("ask", "anything", "-c", "void", code=1)["outcome"] == "empty"


def test_ask_with_unknown_provider_exits_with_2(handbook: CommandLine) -> None:
    done = handbook("ask", "Who?", "-c", "handbook", "--provider", "nobody", code=2)
    assert "nobody" in done.stderr


async def ask_model(cli: CommandLine, server: FakeOpenAI, *arguments: str) -> tuple[int, str, str]:
    environment = {
        **cli.environment,
        "VECTORFORGE_OPENAI_API_KEY": server.api_key,
        "VECTORFORGE_OPENAI_BASE_URL": server.base_url,
        "VECTORFORGE_LLM_MAX_RETRIES": "0",
    }
    process = await asyncio.create_subprocess_exec(
        VECTORFORGE, "ask", "Who approves?", "-c", "handbook", *arguments,
        cwd=cli.folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    assert server.api_key not in (out + err).decode()
    return process.returncode, out.decode(), err.decode()


async def test_ask_with_key_prints_answer_of_model(handbook: CommandLine) -> None:
    async with FakeOpenAI() as server:
        server.script(Reply(texts=("The finance", " team ", "[Source 1].")))
        code, out, err = await ask_model(handbook, server)
    assert (code, out.splitlines()[0]) == (0, "The finance team [Source 1].")
    assert "[1] ./handbook.md" in out
    assert err.startswith("openai")


async def test_ask_with_conversation_continues_it(handbook: CommandLine) -> None:  # P9
    async with FakeOpenAI() as server:
        server.script(Reply(texts=("The finance team, within 9 days [Source 1].",)))
        code, out, err = await ask_model(handbook, server, "--conversation", "new")
        assert (code, "source 1 does not say what cites it" in err) == (0, True)
        conversation = re.findall(r"^Conversation (\S+)$", err, re.MULTILINE)[0]
        server.script(Reply(texts=("Who approves refunds?",)), Reply(texts=("They do.",)))
        arguments = ("--conversation", conversation, "--rewrite", "--json")
        code, out, _ = await ask_model(handbook, server, *arguments)
        answer = json.loads(out)
        sent = [message["content"] for message in server.requests[-1].body["messages"][1:]]
        code, _, err = await ask_model(handbook, server, "--conversation", "nonsense")
    assert (answer["conversation_id"], answer["rewritten_query"]) == (
        conversation,
        "Who approves refunds?",
    )
    assert sent == ["Who approves?", "The finance team, within 9 days.", "Who approves?"]
    assert (code, "--conversation" in err) == (2, True)


async def test_ask_with_effort_prints_the_steps_and_rejects_too_many_intents(handbook: CommandLine) -> None:
    plan = {"queries": ["who approves refunds"], "read": 0}
    async with FakeOpenAI() as server:
        server.script(Reply(texts=(json.dumps(plan),)), Reply(texts=("The finance team [Source 1].",)))
        code, out, err = await ask_model(handbook, server, "--effort", "low")
        assert (code, out.splitlines()[0]) == (0, "The finance team [Source 1].")
        assert "Plan: who approves refunds" in err
        assert re.search(r"^Search: who approves refunds \(0 new of \d+ passages\)$", err, re.MULTILINE)
        code, _, err = await ask_model(handbook, server, *["--intent", "refunds"] * 5)
    assert (code, "intents must be at most 4 texts" in err) == (2, True)


async def test_ask_without_citations_lists_retrieved_passages(handbook: CommandLine) -> None:
    async with FakeOpenAI() as server:
        server.script(Reply(texts=("Nobody knows.",)))
        code, out, _ = await ask_model(handbook, server)
    assert code == 0
    assert "Sources" not in out
    assert "Retrieved passages" in out


async def test_ask_with_broken_stream_prints_partial_answer_and_exits_with_3(handbook: CommandLine) -> None:
    async with FakeOpenAI() as server:
        server.script(Reply(texts=("The finance",), ending="cut"))
        code, out, err = await ask_model(handbook, server)
    assert (code, out) == (3, "The finance\n")
    assert err.splitlines()[-1].startswith("error: ")


async def test_ask_with_rejected_key_exits_with_3(handbook: CommandLine) -> None:
    async with FakeOpenAI() as server:
        server.script(Failure(401))
        code, out, err = await ask_model(handbook, server, "--json")
    assert (code, out) == (3, "")
    assert json.loads(err)["error"]["code"] == "llm_authentication"
