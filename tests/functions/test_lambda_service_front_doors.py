"""Buffered front doors: events as AWS documents them, and answers."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Unpack

import httpx2
import pytest

from infra.emulator.lambda_service.front_doors import FrontDoor, FunctionUrl
from infra.emulator.lambda_service.function_configuration import (
    AWSLAMBDARIC_COMMAND,
    FunctionConfiguration,
    TooManyRequestsError,
)
from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.emulator.lambda_service.invocation import Invocation, InvocationOptions
from tests.functions.scripted_function import DOORS, ScriptedFunction
from tests.support.aws.http_api import HttpApi
from tests.support.aws.rest_api import RestApi

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


@pytest.fixture
async def mangum() -> AsyncIterator[FunctionProcess]:
    """Run a FastAPI app under Mangum and awslambdaric, both unmodified."""
    settings = FunctionConfiguration(
        handler="sample_function.http",
        command=AWSLAMBDARIC_COMMAND,
        task_root=HERE,
        timeout_s=120,
        init_timeout_s=120,
    )
    async with FunctionProcess(settings) as process:
        yield process


JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("name", DOORS)
async def test_buffered_app_behind_each_front_door_gets_the_whole_request(
    name: str, mangum: FunctionProcess, client: httpx2.AsyncClient
) -> None:
    async with DOORS[name](mangum) as front_door:
        url = f"{front_door.url}/echo/a%20b/%C3%BC?x=1&x=2&y=%26"
        headers = [("X-Twice", "1"), ("X-Twice", "2"), ("Cookie", "a=1; b=2"), ("Accept", "text/html")]
        sent = json.dumps({"text": "ü"}, ensure_ascii=False)
        response = await client.post(
            url, content=sent.encode(), headers=[*headers, ("Content-Type", "application/json")]
        )
        echoed = response.json()
        assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
        assert echoed["path"] == "/echo/a b/ü"
        assert echoed["query"] == [["x", "1"], ["x", "2"], ["y", "&"]]
        assert echoed["cookies"] == {"a": "1", "b": "2"}
        assert echoed["headers"]["x-forwarded-for"] == "127.0.0.1"
        assert echoed["headers"]["host"] == front_door.address
        assert echoed["body"].encode("latin-1").decode() == sent

        binary = await client.get(f"{front_door.url}/bytes")
        assert (binary.status_code, binary.content) == (201, bytes(range(256)))
        cookies = binary.headers.get_list("set-cookie")
        assert [cookie.split(";")[0] for cookie in cookies] == ["a=1", "b=2"]

        upload = await client.post(f"{front_door.url}/echo/", content=bytes(range(256)))
        assert upload.json()["body"].encode("latin-1") == bytes(range(256))

        joined = await client.get(f"{front_door.url}/pieces")
        assert joined.text == "0;1;2;"
        assert mangum.starts == 1


async def test_function_url_event_has_the_documented_shape(
    scripted: ScriptedFunction, client: httpx2.AsyncClient
) -> None:
    documented = json.loads((ROOT / "events" / "query_function_url_query.json").read_text())
    async with FunctionUrl(scripted, response_mode="buffered") as front_door:
        request = asyncio.create_task(
            client.post(f"{front_door.url}/v1/rag/query", content=b"{}", headers=JSON)
        )
        event = await scripted.answer({"statusCode": 204})
        assert (await request).status_code == 204
        assert shape(event) == shape(documented)
        assert (event["version"], event["rawPath"], event["body"]) == ("2.0", "/v1/rag/query", "{}")
        assert event["requestContext"]["http"]["method"] == "POST"
        request = asyncio.create_task(
            client.get(
                f"{front_door.url}/a%20b?x=1&x=2&y=",
                headers=[("Cookie", "a=1; b=2"), ("X-A", "1"), ("x-a", "2")],
            )
        )
        event = await scripted.answer("text")
        assert (await request).text == "text"
        assert (event["rawPath"], event["rawQueryString"]) == ("/a%20b", "x=1&x=2&y=")
        assert event["queryStringParameters"] == {"x": "1,2", "y": ""}
        assert (event["cookies"], event["headers"]["x-a"]) == (["a=1", "b=2"], "1,2")
        assert "cookie" not in event["headers"]
        assert "body" not in event


async def test_rest_api_event_has_the_documented_shape(
    scripted: ScriptedFunction, client: httpx2.AsyncClient
) -> None:
    documented = json.loads((ROOT / "events" / "query_apigateway_rest_health.json").read_text())
    async with RestApi(scripted, response_mode="buffered", stage="prod") as front_door:
        request = asyncio.create_task(client.get(f"{front_door.url}/health"))
        event = await scripted.answer({"statusCode": 200})
        assert (await request).status_code == 200
        volatile: dict[str, Any] = {"headers": {}, "multiValueHeaders": {}}
        assert shape(event | volatile) == shape(documented | volatile)
        assert event["pathParameters"] == {"proxy": "health"}
        assert event["requestContext"]["path"] == "/prod/health"
        request = asyncio.create_task(
            client.post(f"{front_door.url}/?x=1&x=2", content=b"\xff", headers=[("X-A", "1"), ("x-a", "2")])
        )
        event = await scripted.answer({"statusCode": 200})
        await request
        assert (event["resource"], event["pathParameters"]) == ("/", None)
        assert event["multiValueQueryStringParameters"] == {"x": ["1", "2"]}
        assert event["queryStringParameters"] == {"x": "2"}
        assert event["multiValueHeaders"]["X-A"] == ["1", "2"]
        assert event["headers"]["X-A"] == "2"
        assert (event["body"], event["isBase64Encoded"]) == (base64.b64encode(b"\xff").decode(), True)


async def test_http_api_event_names_its_stage(scripted: ScriptedFunction, client: httpx2.AsyncClient) -> None:
    async with HttpApi(scripted, stage="dev") as front_door:
        request = asyncio.create_task(client.get(f"{front_door.url}/health"))
        event = await scripted.answer({"statusCode": 200})
        await request
        assert event["rawPath"] == event["requestContext"]["http"]["path"] == "/dev/health"
        assert event["requestContext"]["stage"] == "dev"
        assert "authentication" not in event["requestContext"]


def shape(value: Any) -> Any:
    """Return keys and types; headers depend on the client."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items() if key != "headers"}
    return type(value).__name__


ANSWERS: list[tuple[str, object, int]] = [
    ("function_url", {"statusCode": 200, "body": 1}, 502),
    ("function_url", {"statusCode": "no"}, 502),
    ("function_url", {"statusCode": 99}, 502),
    ("function_url", {"statusCode": 200, "headers": {"x": {"a": 1}}}, 502),
    ("function_url", {"statusCode": 200, "headers": {"x": "a\r\nb: c"}}, 502),
    ("function_url", {"statusCode": 200, "body": "%", "isBase64Encoded": True}, 502),
    ("function_url", {"no": "status"}, 200),
    ("function_url", "text", 200),
    ("function_url", b'{"statusCode": 404}' + b"\0" * 8 + b"text", 200),  # a prelude for a buffered caller
    ("http_api", {"no": "status"}, 200),
    ("http_api", {"statusCode": 200, "body": {}}, 500),
    ("http_api", b"no json", 500),
    ("rest_api", {"no": "status"}, 502),
    ("rest_api", "text", 502),
    ("rest_api", b'{"statusCode": 404}' + b"\0" * 8 + b"text", 502),
    ("rest_api", {"statusCode": "404"}, 404),
    ("rest_api", {"statusCode": 200, "multiValueHeaders": {"x": "1"}}, 502),
]


@pytest.mark.parametrize(("name", "answer", "status"), ANSWERS)
async def test_malformed_answer_has_the_status_of_its_front_door(
    name: str, answer: object, status: int, scripted: ScriptedFunction, client: httpx2.AsyncClient
) -> None:
    async with DOORS[name](scripted) as front_door:
        request = asyncio.create_task(client.get(front_door.url))
        await scripted.answer(answer)
        response = await request
        assert response.status_code == status
        if isinstance(answer, bytes) and status == 200:
            assert response.content == answer
        elif answer == {"no": "status"} and status == 200:
            assert response.json() == answer


async def test_rest_api_answer_keeps_repeated_headers(
    scripted: ScriptedFunction, client: httpx2.AsyncClient
) -> None:
    async with RestApi(scripted, response_mode="buffered") as front_door:
        request = asyncio.create_task(client.get(front_door.url))
        headers = {"X-A": "single", "X-B": 7, "X-C": True, "Content-Length": "999"}
        await scripted.answer(
            {"statusCode": 201, "headers": headers, "multiValueHeaders": {"x-a": ["1", "2"]}, "body": "b"}
        )
        response = await request
        assert response.headers.get_list("x-a") == ["1", "2"]
        assert (response.headers["x-b"], response.headers["x-c"]) == ("7", "true")
        assert (response.status_code, response.text) == (201, "b")


class BusyFunction:
    """A function without free concurrency."""

    async def invoke(self, event: object, **options: Unpack[InvocationOptions]) -> Invocation:
        raise TooManyRequestsError


@pytest.mark.parametrize(("name", "status"), [("function_url", 429), ("rest_api", 500), ("http_api", 503)])
async def test_throttled_function_has_the_status_of_its_front_door(
    name: str, status: int, client: httpx2.AsyncClient
) -> None:  # faults 46
    async with DOORS[name](BusyFunction()) as front_door:
        assert (await client.get(front_door.url)).status_code == status


@pytest.mark.parametrize(("make", "status"), [(RestApi, 504), (HttpApi, 503)])
async def test_api_over_its_timeout_answers_with_an_error(
    make: type[RestApi | HttpApi], status: int, scripted: ScriptedFunction, client: httpx2.AsyncClient
) -> None:
    async with make(scripted, timeout_s=0.05) as front_door:
        assert (await client.get(front_door.url)).status_code == status


async def test_request_over_the_limit_is_413(scripted: ScriptedFunction, client: httpx2.AsyncClient) -> None:
    class Narrow(FunctionUrl):
        request_limit = 10

    async with Narrow(scripted) as front_door:
        assert (await client.post(front_door.url, content=b"x" * 11)).status_code == 413

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(100):
                yield b"x" * 11_000

        assert (await client.post(front_door.url, content=chunks())).status_code == 413
    limits = {front_door.__name__: front_door.request_limit for front_door in (FunctionUrl, RestApi, HttpApi)}
    assert limits == {"FunctionUrl": 6 << 20, "RestApi": 10 << 20, "HttpApi": 10 << 20}


async def test_malformed_request_is_400(scripted: ScriptedFunction) -> None:
    async with FunctionUrl(scripted) as front_door:
        host, port = front_door.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"nonsense\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
    assert isinstance(front_door, FrontDoor)
    with pytest.raises(RuntimeError, match="is not listening"):
        _ = front_door.url
