"""Function URL, REST API and HTTP API: events as AWS documents them, answers buffered and streamed."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Unpack

import httpx2
import pytest

from infra.emulator.lambda_service.front_door import FrontDoor
from infra.emulator.lambda_service.front_doors import FunctionUrl, HttpApi, RestApi
from infra.emulator.lambda_service.function_configuration import (
    AWSLAMBDARIC_COMMAND,
    Function,
    FunctionConfiguration,
    TooManyRequestsError,
)
from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.emulator.lambda_service.invocation import Invocation, InvocationOptions
from infra.emulator.lambda_service.runtime_api import RuntimeApi
from tests.functions.raw_runtime import RawRuntime

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


@pytest.fixture
async def mangum() -> AsyncIterator[FunctionProcess]:
    """A FastAPI app under Mangum and awslambdaric, both unmodified."""
    settings = FunctionConfiguration(
        handler="sample_function.http",
        command=AWSLAMBDARIC_COMMAND,
        task_root=HERE,
        timeout_s=120,
        init_timeout_s=120,
    )
    async with FunctionProcess(settings) as process:
        yield process


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(timeout=120) as http:
        yield http


class ScriptedFunction:
    """A function whose runtime is the test."""

    def __init__(self, api: RuntimeApi, runtime: RawRuntime) -> None:
        self.api = api
        self.runtime = runtime
        self.invocations: list[Invocation] = []

    async def invoke(self, event: object, **options: Unpack[InvocationOptions]) -> Invocation:
        self.invocations.append(self.api.invoke(event, **options))
        return self.invocations[-1]

    async def next(self) -> tuple[str, dict[str, Any]]:
        """Request id and event of the next invocation."""
        headers, body = await self.runtime.next()
        return headers["lambda-runtime-aws-request-id"], json.loads(body)

    async def answer(self, answer: object) -> dict[str, Any]:
        """Give an answer to the next event; bytes go as they are."""
        request_id, event = await self.next()
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        await self.runtime.request("POST", f"/invocation/{request_id}/response", body)
        return event


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedFunction]:
    async with RuntimeApi() as api, RawRuntime(api.address) as runtime:
        yield ScriptedFunction(api, runtime)


Door = Callable[[Function], FrontDoor]
DOORS: dict[str, Door] = {
    "function_url": lambda function: FunctionUrl(function, response_mode="buffered"),
    "rest_api": lambda function: RestApi(function, response_mode="buffered"),
    "http_api": HttpApi,
}


@pytest.mark.parametrize("name", DOORS)
async def test_a_buffered_app_behind_each_door(
    name: str, mangum: FunctionProcess, client: httpx2.AsyncClient
) -> None:
    async with DOORS[name](mangum) as door:
        url = f"{door.url}/echo/a%20b/%C3%BC?x=1&x=2&y=%26"
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
        assert echoed["headers"]["host"] == door.address
        assert echoed["body"].encode("latin-1").decode() == sent

        binary = await client.get(f"{door.url}/bytes")
        assert (binary.status_code, binary.content) == (201, bytes(range(256)))
        cookies = binary.headers.get_list("set-cookie")
        assert [cookie.split(";")[0] for cookie in cookies] == ["a=1", "b=2"]

        upload = await client.post(f"{door.url}/echo/", content=bytes(range(256)))
        assert upload.json()["body"].encode("latin-1") == bytes(range(256))

        joined = await client.get(f"{door.url}/pieces")
        assert joined.text == "0;1;2;"
        assert mangum.starts == 1


async def test_a_function_url_event_has_the_documented_shape(
    scripted: ScriptedFunction, client: httpx2.AsyncClient
) -> None:
    documented = json.loads((ROOT / "events" / "query_function_url_query.json").read_text())
    async with FunctionUrl(scripted, response_mode="buffered") as door:
        request = asyncio.create_task(client.post(f"{door.url}/v1/rag/query", content=b"{}", headers=JSON))
        event = await scripted.answer({"statusCode": 204})
        assert (await request).status_code == 204
        assert shape(event) == shape(documented)
        assert (event["version"], event["rawPath"], event["body"]) == ("2.0", "/v1/rag/query", "{}")
        assert event["requestContext"]["http"]["method"] == "POST"
        request = asyncio.create_task(
            client.get(
                f"{door.url}/a%20b?x=1&x=2&y=",
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


async def test_a_rest_event_has_the_documented_shape(
    scripted: ScriptedFunction, client: httpx2.AsyncClient
) -> None:
    documented = json.loads((ROOT / "events" / "query_apigateway_rest_health.json").read_text())
    async with RestApi(scripted, response_mode="buffered", stage="prod") as door:
        request = asyncio.create_task(client.get(f"{door.url}/health"))
        event = await scripted.answer({"statusCode": 200})
        assert (await request).status_code == 200
        volatile: dict[str, Any] = {"headers": {}, "multiValueHeaders": {}}
        assert shape(event | volatile) == shape(documented | volatile)
        assert event["pathParameters"] == {"proxy": "health"}
        assert event["requestContext"]["path"] == "/prod/health"
        request = asyncio.create_task(
            client.post(f"{door.url}/?x=1&x=2", content=b"\xff", headers=[("X-A", "1"), ("x-a", "2")])
        )
        event = await scripted.answer({"statusCode": 200})
        await request
        assert (event["resource"], event["pathParameters"]) == ("/", None)
        assert event["multiValueQueryStringParameters"] == {"x": ["1", "2"]}
        assert event["queryStringParameters"] == {"x": "2"}
        assert event["multiValueHeaders"]["X-A"] == ["1", "2"]
        assert event["headers"]["X-A"] == "2"
        assert (event["body"], event["isBase64Encoded"]) == (base64.b64encode(b"\xff").decode(), True)


async def test_an_http_api_event_names_its_stage(
    scripted: ScriptedFunction, client: httpx2.AsyncClient
) -> None:
    async with HttpApi(scripted, stage="dev") as door:
        request = asyncio.create_task(client.get(f"{door.url}/health"))
        event = await scripted.answer({"statusCode": 200})
        await request
        assert event["rawPath"] == event["requestContext"]["http"]["path"] == "/dev/health"
        assert event["requestContext"]["stage"] == "dev"
        assert "authentication" not in event["requestContext"]


JSON = {"content-type": "application/json"}


def shape(value: Any) -> Any:
    """Keys and types; headers are whatever the client sends."""
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
async def test_malformed_answers(
    name: str, answer: object, status: int, scripted: ScriptedFunction, client: httpx2.AsyncClient
) -> None:
    async with DOORS[name](scripted) as door:
        request = asyncio.create_task(client.get(door.url))
        await scripted.answer(answer)
        response = await request
        assert response.status_code == status
        if isinstance(answer, bytes) and status == 200:
            assert response.content == answer
        elif answer == {"no": "status"} and status == 200:
            assert response.json() == answer


async def test_headers_of_a_rest_answer(scripted: ScriptedFunction, client: httpx2.AsyncClient) -> None:
    async with RestApi(scripted, response_mode="buffered") as door:
        request = asyncio.create_task(client.get(door.url))
        headers = {"X-A": "single", "X-B": 7, "X-C": True, "Content-Length": "999"}
        await scripted.answer(
            {"statusCode": 201, "headers": headers, "multiValueHeaders": {"x-a": ["1", "2"]}, "body": "b"}
        )
        response = await request
        assert response.headers.get_list("x-a") == ["1", "2"]
        assert (response.headers["x-b"], response.headers["x-c"]) == ("7", "true")
        assert (response.status_code, response.text) == (201, "b")


STREAMING = [FunctionUrl, RestApi]


@pytest.mark.parametrize("make", STREAMING)
async def test_a_stream_passes_in_lock_step(
    make: type[FunctionUrl | RestApi], scripted: ScriptedFunction, client: httpx2.AsyncClient
) -> None:
    runtime = scripted.runtime
    async with make(scripted) as door:
        request = asyncio.create_task(client.send(client.build_request("GET", door.url), stream=True))
        request_id, _ = await scripted.next()
        await runtime.stream(request_id)
        prelude = {
            "statusCode": 418,
            "headers": {"content-type": "text/plain", "content-length": "3"},
            "cookies": ["a=1", "b=2"],
        }
        await runtime.send_chunk(json.dumps(prelude).encode() + b"\0" * 5)
        await runtime.send_chunk(b"\0" * 3)
        response = await request  # before there is a body
        assert (response.status_code, response.headers["content-type"]) == (418, "text/plain")
        assert response.headers["transfer-encoding"] == "chunked"
        assert response.headers.get_list("set-cookie") == ["a=1", "b=2"]
        pieces = response.aiter_raw()
        for number in range(20):
            await runtime.send_chunk(b"token %d" % number)
            assert await anext(pieces) == b"token %d" % number
        await runtime.end_chunks()
        assert [piece async for piece in pieces] == []


@pytest.mark.parametrize("make", STREAMING)
@pytest.mark.parametrize("ending", ["trailers", "truncated", "limit"])
async def test_a_failure_on_the_way_cuts_the_connection(
    make: type[FunctionUrl | RestApi], ending: str, client: httpx2.AsyncClient
) -> None:
    async with RuntimeApi(streaming_limit=100) as api, RawRuntime(api.address) as runtime:
        scripted = ScriptedFunction(api, runtime)
        async with make(scripted) as door:
            request = asyncio.create_task(client.send(client.build_request("GET", door.url), stream=True))
            request_id, _ = await scripted.next()
            await runtime.stream(request_id)
            await runtime.send_chunk(b'{"statusCode": 200}' + b"\0" * 8 + b"begun")
            pieces = (await request).aiter_raw()
            assert await anext(pieces) == b"begun"
            if ending == "trailers":
                await runtime.end_chunks([("Lambda-Runtime-Function-Error-Type", "ValueError")])
            elif ending == "limit":
                await runtime.send_chunk(b"x" * 100)
            else:
                runtime.writer.transport.abort()
            with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
                await anext(pieces)


@pytest.mark.parametrize("make", STREAMING)
@pytest.mark.parametrize("problem", ["error", "prelude", "endless", "short"])
async def test_a_failure_before_the_prelude_is_502(
    make: type[FunctionUrl | RestApi],
    problem: str,
    scripted: ScriptedFunction,
    client: httpx2.AsyncClient,
) -> None:
    runtime = scripted.runtime
    async with make(scripted) as door:
        request = asyncio.create_task(client.get(door.url))
        request_id, _ = await scripted.next()
        if problem == "error":
            await runtime.request("POST", f"/invocation/{request_id}/error", b'{"errorType": "E"}')
        else:
            await runtime.stream(request_id)
            begin = {"prelude": b"no json" + b"\0" * 8, "endless": b"x" * 17_000, "short": b'{"statusCode'}
            await runtime.send_chunk(begin[problem])
            await runtime.end_chunks()
        assert (await request).status_code == 502


async def test_an_answer_without_the_content_type_is_opaque_at_a_function_url(
    scripted: ScriptedFunction, client: httpx2.AsyncClient
) -> None:
    async with FunctionUrl(scripted) as door:
        request = asyncio.create_task(client.get(door.url))
        await scripted.answer({"statusCode": 404})
        response = await request
        assert (response.status_code, response.json()) == (200, {"statusCode": 404})
        assert response.headers["content-type"] == "application/octet-stream"


async def test_a_client_that_goes_away_does_not_stop_the_function(
    scripted: ScriptedFunction, client: httpx2.AsyncClient
) -> None:  # faults 15
    runtime = scripted.runtime
    async with FunctionUrl(scripted) as door:
        request = asyncio.create_task(client.send(client.build_request("GET", door.url), stream=True))
        request_id, _ = await scripted.next()
        await runtime.stream(request_id)
        await runtime.send_chunk(b'{"statusCode": 200}' + b"\0" * 8 + b"begun")
        await (await request).aclose()
        for _ in range(50):
            await runtime.send_chunk(b"x" * 10_000)
        assert (await runtime.end_chunks())[0] == 202
        (invocation,) = scripted.invocations
        assert invocation.error is None
        assert len(invocation.body) > 500_000


@pytest.mark.parametrize("head", ["HEAD / HTTP/1.1", "GET / HTTP/1.1"])
async def test_a_stream_without_a_body_keeps_the_connection(scripted: ScriptedFunction, head: str) -> None:
    runtime = scripted.runtime
    status = 200 if head.startswith("HEAD") else 204
    async with FunctionUrl(scripted) as door:
        host, port = door.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in range(2):
            writer.write(f"{head}\r\nHost: x\r\n\r\n".encode())
            request_id, _ = await scripted.next()
            await runtime.stream(request_id)
            await runtime.send_chunk(json.dumps({"statusCode": status}).encode() + b"\0" * 8 + b"dropped")
            await runtime.end_chunks()
            received = (await reader.readuntil(b"\r\n\r\n")).decode()
            assert received.startswith(f"HTTP/1.1 {status} ")
            assert "transfer-encoding" not in received
        writer.close()


class BusyFunction:
    """A function without free concurrency."""

    async def invoke(self, event: object, **options: Unpack[InvocationOptions]) -> Invocation:
        raise TooManyRequestsError


@pytest.mark.parametrize(("name", "status"), [("function_url", 429), ("rest_api", 500), ("http_api", 503)])
async def test_throttling(name: str, status: int, client: httpx2.AsyncClient) -> None:  # faults 46
    async with DOORS[name](BusyFunction()) as door:
        assert (await client.get(door.url)).status_code == status


@pytest.mark.parametrize(("make", "status"), [(RestApi, 504), (HttpApi, 503)])
async def test_an_api_does_not_wait_for_ever(
    make: type[RestApi | HttpApi], status: int, scripted: ScriptedFunction, client: httpx2.AsyncClient
) -> None:
    async with make(scripted, timeout_s=0.05) as door:
        assert (await client.get(door.url)).status_code == status


async def test_requests_have_a_limit(scripted: ScriptedFunction, client: httpx2.AsyncClient) -> None:
    class Narrow(FunctionUrl):
        request_limit = 10

    async with Narrow(scripted) as door:
        assert (await client.post(door.url, content=b"x" * 11)).status_code == 413

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(100):
                yield b"x" * 11_000

        assert (await client.post(door.url, content=chunks())).status_code == 413
    limits = {door.__name__: door.request_limit for door in (FunctionUrl, RestApi, HttpApi)}
    assert limits == {"FunctionUrl": 6 << 20, "RestApi": 10 << 20, "HttpApi": 10 << 20}


async def test_nonsense_is_refused(scripted: ScriptedFunction) -> None:
    async with FunctionUrl(scripted) as door:
        host, port = door.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"nonsense\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
    assert isinstance(door, FrontDoor)
    with pytest.raises(RuntimeError, match="does not listen"):
        _ = door.url
