"""``retrieve_and_generate`` of boto3: cited parts, settings, models and sessions."""

from contextlib import closing
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.integration.bedrock.conftest import GUIDES
from tests.support.http.knowledge_bases import (
    ASKED,
    KNOWLEDGE_BASE,
    MODEL_ARN,
    call,
    knowledge_base_client,
    question,
)
from tests.support.http.live_api import LiveApi
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply


def cited(response: Any) -> list[tuple[str, list[str]]]:
    """Return the cited parts with the sources of each, after checking their spans (inclusive ends)."""
    parts = []
    for citation in response["citations"]:
        part = citation["generatedResponsePart"]["textResponsePart"]
        start, end = part["span"]["start"], part["span"]["end"]
        assert response["output"]["text"][start : end + 1] == part["text"]
        found = [r["location"]["customDocumentLocation"]["id"] for r in citation["retrievedReferences"]]
        parts.append((part["text"], found))
    return parts


async def test_answer_has_no_labels_and_its_parts_name_their_sources(
    client: Any, vendor: FakeOpenAI, api: LiveApi, tenant: str
) -> None:
    text = "Hello 🙂. It rises two hours [Source 1], at 100 degrees [Source 2]. Then bake it [Source 1, 2]."
    vendor.script(Reply(texts=(text,)))
    response = await call(client.retrieve_and_generate, **question())
    assert response["output"]["text"] == "Hello 🙂. It rises two hours, at 100 degrees. Then bake it."
    assert cited(response) == [
        ("It rises two hours", ["bread.md"]),
        ("at 100 degrees.", ["kettle.md"]),
        ("Then bake it.", ["bread.md", "kettle.md"]),
    ]
    reference = response["citations"][0]["retrievedReferences"][0]
    assert reference["content"]["text"] == GUIDES["bread"].strip()
    assert reference["metadata"]["kind"] == "bread"
    assert response["guardrailAction"] == "NONE"
    assert str(UUID(response["sessionId"])) == response["sessionId"]
    async with api.client(tenant) as native:
        (logged,) = (await native.get("/v1/queries")).json()["queries"]
        record = (await native.get(f"/v1/queries/{logged['id']}")).json()
    assert (record["query_text"], record["preset"], record["outcome"]) == (ASKED, "bedrock", "answered")
    assert record["conversation_id"] == response["sessionId"]


async def test_answer_without_citation_is_one_part_without_references(
    client: Any, vendor: FakeOpenAI
) -> None:
    vendor.script(Reply(texts=("I don't know.",), finish="refusal"))
    response = await call(client.retrieve_and_generate, **question())
    assert cited(response) == [("I don't know.", [])]
    assert response["guardrailAction"] == "INTERVENED"


async def test_settings_control_search_and_generation(client: Any, vendor: FakeOpenAI) -> None:
    template = 'Pirate, "{x}" $output_format_instructions$: $query$ Context: $search_results$ {context}'
    generation = {
        "inferenceConfig": {"textInferenceConfig": {"temperature": 0.25, "topP": 0.5, "maxTokens": 77}},
        "promptTemplate": {"textPromptTemplate": template},
    }
    search = {"numberOfResults": 1, "filter": {"equals": {"key": "kind", "value": "kettle"}}}
    asked = "What does {context} or $search_results$ mean?"
    await call(
        client.retrieve_and_generate, **question(asked, search=search, generationConfiguration=generation)
    )
    body = vendor.bodies[-1]
    assert (body["temperature"], body["top_p"]) == (0.25, 0.5)
    assert body.get("max_completion_tokens", body.get("max_tokens")) == 77
    prompt = body["messages"][0]["content"]
    assert prompt.startswith(f'Pirate, "{{x}}" : {asked} Context: ')
    assert prompt.endswith(" {context}")
    assert prompt.count("100 degrees") == 1
    assert "two hours" not in prompt
    await call(client.retrieve_and_generate, **question())
    assert vendor.bodies[-1]["temperature"] == 0  # Bedrock's default
    assert "nowhere else" in vendor.bodies[-1]["messages"][0]["content"]


async def test_answer_ends_before_stop_sequence(client: Any, vendor: FakeOpenAI) -> None:
    vendor.script(
        Reply(
            texts=(
                "It rises two ho",
                "urs [Source 1]. END The rest.",
            )
        )
    )
    sampling = {"textInferenceConfig": {"stopSequences": ["END", "FIN"]}}
    generation = {"inferenceConfig": sampling}
    response = await call(client.retrieve_and_generate, **question(generationConfiguration=generation))
    assert vendor.bodies[-1]["stop"] == ["END", "FIN"]
    assert response["output"]["text"].strip() == "It rises two hours."


async def test_query_decomposition_searches_for_sub_queries(client: Any, api: LiveApi, tenant: str) -> None:
    orchestration = {"queryTransformationConfiguration": {"type": "QUERY_DECOMPOSITION"}}
    await call(client.retrieve_and_generate, **question(orchestrationConfiguration=orchestration))
    async with api.client(tenant) as native:
        (logged,) = (await native.get("/v1/queries")).json()["queries"]
        record = (await native.get(f"/v1/queries/{logged['id']}")).json()
    assert record["steps"]


@pytest.mark.parametrize(
    ("model_arn", "sent"),
    [(MODEL_ARN, None), ("amazon.nova-lite-v1:0", None), ("openai", None), ("openai/gpt-x", "gpt-x")],
)
async def test_model_arn_chooses_provider_and_model(
    client: Any, vendor: FakeOpenAI, model_arn: str, sent: str | None
) -> None:
    await call(client.retrieve_and_generate, **question(modelArn=model_arn))
    default = "gpt-" if sent is None else sent
    assert vendor.bodies[-1]["model"].startswith(default)
    assert "claude" not in vendor.bodies[-1]["model"]


async def test_session_continues_the_conversation(client: Any, vendor: FakeOpenAI) -> None:
    vendor.script(Reply(texts=("Two hours [Source 1].",)), Reply(texts=("230 degrees [Source 1].",)))
    first = await call(client.retrieve_and_generate, **question())
    again = await call(
        client.retrieve_and_generate,
        **question("How hot is the oven for the dough?"),
        sessionId=first["sessionId"],
    )
    assert again["sessionId"] == first["sessionId"]
    assert [m["content"] for m in vendor.bodies[-1]["messages"][1:]] == [
        ASKED,
        "Two hours.",
        "How hot is the oven for the dough?",
    ]
    other = await call(client.retrieve_and_generate, **question())
    assert other["sessionId"] != first["sessionId"]


async def test_unknown_and_foreign_sessions_are_rejected(client: Any, api: LiveApi, stranger: str) -> None:
    own = await call(client.retrieve_and_generate, **question())
    with closing(knowledge_base_client(api.url, stranger)) as theirs:
        for caller, session in (
            (client, str(uuid4())),
            (client, "not-a-session"),
            (theirs, own["sessionId"]),
        ):
            with pytest.raises(caller.exceptions.ValidationException, match="sessionId"):
                await call(caller.retrieve_and_generate, **question(), sessionId=session)


async def test_new_session_of_failed_query_is_deleted(client: Any, api: LiveApi, tenant: str) -> None:
    for missing in ("KBMISSING0", "KBMISSING1"):
        with pytest.raises(client.exceptions.ResourceNotFoundException, match=missing):
            await call(client.retrieve_and_generate, **question(knowledgeBaseId=missing))
        stream = client.retrieve_and_generate_stream
        with pytest.raises(client.exceptions.ResourceNotFoundException, match=missing):
            await call(stream, **question(knowledgeBaseId=missing))
    async with api.client(tenant) as native:
        assert (await native.get("/v1/conversations")).json()["conversations"] == []


async def test_sessions_leave_room_for_conversations(client: Any, api: LiveApi, tenant: str) -> None:
    async with api.client(tenant) as native:
        kept = [(await native.post("/v1/conversations", json={})).json()["id"] for _ in range(3)]
        started = [
            (await call(client.retrieve_and_generate, **question()))["sessionId"] for _ in range(5)
        ]  # the server allows 6 conversations, so 3 sessions
        listed = [c["id"] for c in (await native.get("/v1/conversations")).json()["conversations"]]
    assert sorted(listed) == sorted([*kept, *started[-3:]])
    with pytest.raises(client.exceptions.ValidationException, match="sessionId"):
        await call(client.retrieve_and_generate, **question(), sessionId=started[0])
    assert await call(client.retrieve_and_generate, **question(), sessionId=started[-1])


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {
            "generationConfiguration": {
                "guardrailConfiguration": {"guardrailId": "a", "guardrailVersion": "1"}
            }
        },
        "guardrailConfiguration is not supported",
    ),
    (
        {"generationConfiguration": {"inferenceConfig": {"textInferenceConfig": {"maxTokens": 60_000}}}},
        "textInferenceConfig.maxTokens must be at most 16384",
    ),
    (
        {"generationConfiguration": {"inferenceConfig": {"textInferenceConfig": {"temperature": 2}}}},
        "textInferenceConfig.temperature: Input should be less than or equal to 1",
    ),
    (
        {"generationConfiguration": {"promptTemplate": {"textPromptTemplate": "Be brief."}}},
        "textPromptTemplate must contain $search_results$",
    ),
    (
        {
            "generationConfiguration": {
                "promptTemplate": {"textPromptTemplate": "$search_results$$current_time$"}
            }
        },
        "$current_time$ is not supported",
    ),
    (
        {"orchestrationConfiguration": {"promptTemplate": {"textPromptTemplate": "x"}}},
        "promptTemplate is not supported",
    ),
]


async def test_settings_that_cannot_be_mapped_are_rejected_by_name(
    client: Any, vendor: FakeOpenAI, subtests: pytest.Subtests
) -> None:
    external = {
        "type": "EXTERNAL_SOURCES",
        "externalSourcesConfiguration": {
            "modelArn": MODEL_ARN,
            "sources": [{"sourceType": "S3", "s3Location": {"uri": "s3://b/k"}}],
        },
    }
    key = {"kmsKeyArn": "arn:aws:kms:us-east-1:123456789012:key/" + "a" * 36}
    requests: list[tuple[dict[str, Any], str]] = [
        *((question(**settings), message) for settings, message in REFUSED),
        (
            {"input": {"text": "x"}, "retrieveAndGenerateConfiguration": external},
            "externalSourcesConfiguration",
        ),
        ({**question(), "sessionConfiguration": key}, "sessionConfiguration is not supported"),
        ({**question(), "userContext": {"userId": "ann"}}, "userContext is not supported"),
        ({"input": {"text": "x"}}, "retrieveAndGenerateConfiguration"),
        (question(" "), "Query cannot be empty"),
    ]
    for parameters, message in requests:
        for operation in (client.retrieve_and_generate, client.retrieve_and_generate_stream):
            with (
                subtests.test(message=message),
                pytest.raises(client.exceptions.ValidationException) as refused,
            ):
                await call(operation, **parameters)
            assert message in refused.value.response["Error"]["Message"]
    assert vendor.bodies == []


async def test_name_of_the_fixture_is_what_bedrock_accepts(client: Any) -> None:
    shape = client.meta.service_model.shape_for("KnowledgeBaseId")
    assert len(KNOWLEDGE_BASE) <= shape.metadata["max"]
