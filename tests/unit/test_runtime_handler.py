"""The streaming runtime without a service: events, lifespan, the end of generators, the search path."""

import asyncio
import gc
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vectorforge.runtime import (
    LifespanError,
    StreamedResponse,
    StreamingHandler,
    StreamingUnavailableError,
    UnsupportedEventError,
    can_stream,
)
from vectorforge.runtime.event_loop import GeneratorFinaliser
from vectorforge.runtime.handler import Lifespan, LifespanMode
from vectorforge.runtime.http_event import Receive, Scope, Send, read_event
from vectorforge.runtime.managed_runtime import set_up_path

URL_EVENT: dict[str, Any] = {
    "version": "2.0",
    "rawPath": "/a%20b",
    "rawQueryString": "x=1&y=%20",
    "headers": {"Host": "id.lambda-url.eu-central-1.on.aws", "Content-Type": "text/plain"},
    "cookies": ["a=1", "b=2"],
    "requestContext": {"http": {"method": "PUT", "path": "/a%20b", "sourceIp": "198.51.100.7"}},
    "body": "Z3L2w59l",
    "isBase64Encoded": True,
}
REST_EVENT: dict[str, Any] = {
    "resource": "/{proxy+}",
    "path": "/base/items",
    "httpMethod": "GET",
    "headers": {"Accept": "b", "X-Forwarded-Proto": "HTTP"},
    "multiValueHeaders": {"Accept": ["a", "b"]},
    "queryStringParameters": {"x": "2"},
    "multiValueQueryStringParameters": {"x": ["1", "2"]},
    "requestContext": {"identity": {"sourceIp": "198.51.100.7"}},
    "body": None,
    "isBase64Encoded": False,
}


def test_function_url_event_becomes_asgi_scope() -> None:
    context = SimpleNamespace()
    request = read_event(URL_EVENT, context, "/")
    scope = request.scope
    assert (scope["type"], scope["method"], scope["path"]) == ("http", "PUT", "/a b")
    assert scope["raw_path"] == b"/a%20b"
    assert scope["query_string"] == b"x=1&y=%20"
    assert [b"cookie", b"a=1; b=2"] in scope["headers"]
    assert scope["client"] == ("198.51.100.7", 0)
    assert scope["aws.event"] is URL_EVENT
    assert scope["aws.context"] is context
    assert scope["asgi"] == {"version": "3.0", "spec_version": "2.3"}
    assert request.body == b"gr\xf6\xc3\x9fe"
    assert not request.multi_value_headers


def test_rest_api_event_becomes_asgi_scope() -> None:
    request = read_event(REST_EVENT, None, "/base")
    assert (request.scope["path"], request.scope["root_path"]) == ("/base/items", "/base")
    assert (request.scope["query_string"], request.scope["scheme"]) == (b"x=1&x=2", "http")
    assert [b"accept", b"a, b"] in request.scope["headers"]
    assert request.body == b""
    assert request.multi_value_headers


@pytest.mark.parametrize("missing", ["http", "method", "path", "sourceIp"])
def test_event_with_missing_field_raises_unsupported(missing: str) -> None:
    http = {key: value for key, value in URL_EVENT["requestContext"]["http"].items() if key != missing}
    event = {**URL_EVENT, "requestContext": {} if missing == "http" else {"http": http}}
    with pytest.raises(UnsupportedEventError, match=r"payload format 1\.0 or 2\.0"):
        read_event(event, None, "/")


def test_invalid_base64_body_is_read_as_none() -> None:
    assert read_event({**URL_EVENT, "body": "a"}, None, "/").body is None


@pytest.mark.parametrize(
    "headers", [{"Host": "[::"}, {"Host": "a:b"}, {"Host": "a", "X-Forwarded-Port": "x"}]
)
def test_invalid_host_header_yields_no_server(headers: dict[str, str]) -> None:
    scope = read_event({**URL_EVENT, "headers": headers}, None, "/").scope
    assert scope["server"] is None
    assert [b"host", headers["Host"].encode()] in scope["headers"]


def test_repeated_cookies_are_joined_with_semicolon() -> None:
    event = {**REST_EVENT, "multiValueHeaders": {"Cookie": ["a=1", "b=2"]}}
    assert [b"cookie", b"a=1; b=2"] in read_event(event, None, "/").scope["headers"]


def test_header_names_that_differ_in_case_are_joined() -> None:
    once, lists = {"X-A": "a", "x-a": "b"}, {"X-A": ["a"], "x-a": ["b"]}
    for event in (
        {**URL_EVENT, "headers": once},
        {**REST_EVENT, "headers": once, "multiValueHeaders": lists},
    ):
        found = [value for name, value in read_event(event, None, "/").scope["headers"] if name == b"x-a"]
        assert found == [b"a, b"]


@pytest.mark.parametrize(
    ("path", "stage", "base_path", "expected"),
    [
        ("/prod/x", "prod", "/", ("/prod", "/prod/x")),
        ("/prod", "prod", "/", ("/prod", "/prod/")),
        ("/production/x", "prod", "/", ("", "/production/x")),
        ("/x", "$default", "/", ("", "/x")),
        ("/shop/x", "$default", "shop/", ("/shop", "/shop/x")),
        ("/shop/x", "prod", "/shop", ("/shop", "/shop/x")),
        ("/shopping", "$default", "/shop", ("", "/shopping")),
        ("/shop", "$default", "/shop", ("/shop", "/shop/")),
        ("", "$default", "/shop", ("", "/")),
    ],
)
def test_stage_and_base_path_form_root_path(
    path: str, stage: str, base_path: str, expected: tuple[str, str]
) -> None:
    http = {**URL_EVENT["requestContext"]["http"], "path": path}
    event = {**URL_EVENT, "requestContext": {"http": http, "stage": stage}}
    scope = read_event(event, None, base_path).scope
    assert (scope["root_path"], scope["path"]) == expected


@pytest.mark.parametrize(
    ("path", "full_path", "base_path", "expected"),
    [
        ("/x", "/prod/x", "/", ("/prod", "/prod/x")),
        ("/", "/prod", "/", ("/prod", "/prod/")),
        ("/shop/x", "/shop/x", "shop", ("/shop", "/shop/x")),
        ("/prod/x", "/prod/x", "/", ("", "/prod/x")),
    ],
)
def test_rest_stage_is_read_from_full_path(
    path: str, full_path: str, base_path: str, expected: tuple[str, str]
) -> None:
    event = {**REST_EVENT, "path": path, "requestContext": {"stage": "prod", "path": full_path}}
    scope = read_event(event, None, base_path).scope
    assert (scope["root_path"], scope["path"]) == expected


async def nothing(scope: Scope, receive: Receive, send: Send) -> None: ...


def test_process_without_runtime_cannot_stream() -> None:
    assert can_stream() is False
    with pytest.raises(StreamingUnavailableError, match=r"python -m vectorforge\.runtime"):
        StreamingHandler(nothing)(URL_EVENT, None)


def test_negative_deadline_margin_is_rejected() -> None:
    with pytest.raises(ValueError, match="deadline_margin_s"):
        StreamingHandler(nothing, deadline_margin_s=-1)


def test_streamed_response_is_json_serializable() -> None:
    assert StreamedResponse(200, complete=True) == {"statusCode": 200, "streamed": True, "complete": True}


class App:
    """An ASGI app with a regular lifespan."""

    def __init__(self, *script: str) -> None:
        self.script = script
        self.received: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["key"] = "value"
        for step in self.script:
            if step == "receive":
                self.received.append((await receive())["type"])
            elif step == "raise":
                raise ValueError("broken")
            elif step == "hang":
                await asyncio.sleep(3600)
            else:
                await send({"type": step})


WHOLE = ("receive", "lifespan.startup.complete", "receive", "lifespan.shutdown.complete")


async def test_lifespan_starts_and_stops_once() -> None:
    app = App(*WHOLE)
    lifespan = Lifespan(app, "auto")
    await lifespan.startup()
    await lifespan.startup()
    assert (app.received, lifespan.state) == (["lifespan.startup"], {"key": "value"})
    await lifespan.shutdown(1)
    await lifespan.shutdown(1)
    assert app.received == ["lifespan.startup", "lifespan.shutdown"]


@pytest.mark.parametrize(
    ("mode", "script"),
    [
        ("auto", ("receive", "lifespan.startup.failed")),
        ("auto", ("receive", "lifespan.startup.failed", "hang")),
        ("auto", ("receive", "lifespan.startup.failed", "raise")),
        ("on", ("raise",)),
        ("on", ()),
    ],
)
async def test_failed_startup_raises_and_is_retryable(mode: LifespanMode, script: tuple[str, ...]) -> None:
    app = App(*script)
    lifespan = Lifespan(app, mode)
    for _ in range(2):
        with pytest.raises(LifespanError):
            await lifespan.startup()
    app.script = WHOLE
    await lifespan.startup()
    await lifespan.shutdown(1)


@pytest.mark.parametrize("script", [("raise",), ("receive", "raise"), ()])
async def test_lifespan_auto_serves_app_without_lifespan(script: tuple[str, ...]) -> None:
    lifespan = Lifespan(App(*script), "auto")
    await lifespan.startup()
    await lifespan.shutdown(1)


async def test_lifespan_off_does_not_call_app() -> None:
    app = App(*WHOLE)
    await Lifespan(app, "off").startup()
    assert app.received == []


@pytest.mark.parametrize("ending", ["hang", "raise"])
async def test_failing_or_hanging_shutdown_ends(ending: str) -> None:
    lifespan = Lifespan(App("receive", "lifespan.startup.complete", "receive", ending), "auto")
    await lifespan.startup()
    await lifespan.shutdown(0.05)


def test_unknown_lifespan_mode_is_rejected() -> None:
    with pytest.raises(ValueError, match="lifespan"):
        Lifespan(nothing, "maybe")  # type: ignore[arg-type]  # what is shown


async def test_dropped_generator_is_closed_and_awaited() -> None:
    closed: list[str] = []

    async def generate(name: str, pause_s: float) -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(pause_s)
            closed.append(name)

    finaliser = GeneratorFinaliser()
    finaliser.watch()
    quick = generate("quick", 0.02)
    await anext(quick)
    del quick
    gc.collect()
    assert await finaliser.wait(5) is True
    assert closed == ["quick"]
    slow = generate("slow", 0.2)
    await anext(slow)
    del slow
    gc.collect()
    assert await finaliser.wait(0.02) is False
    assert await finaliser.wait(5) is True
    assert closed == ["quick", "slow"]


def test_search_path_matches_managed_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, layers, runtime = (tmp_path / name for name in ("task", "layers", "runtime"))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = layers / "lib" / version / "site-packages"
    linked = tmp_path / "linked"
    for folder in (task, packages, runtime, linked):
        folder.mkdir(parents=True)
    (packages / "x.pth").write_text(str(linked))
    monkeypatch.setattr(sys, "path", ["/of/the/script", "/usr/lib/python"])
    environment = {"LAMBDA_TASK_ROOT": str(task)}
    set_up_path(str(runtime / "bootstrap.py"), environment, str(layers))
    found = [entry for entry in sys.path if "site-packages" not in entry or entry == str(packages)]
    assert found == [*map(str, (task, packages, layers, runtime)), "/usr/lib/python", str(linked)]
    assert environment["PYTHONPATH"] == str(runtime)

    monkeypatch.setattr(sys, "path", ["/of/the/script", "/from/pythonpath"])
    set_up_path(str(runtime / "bootstrap.py"), environment, str(layers))
    assert sys.path == [str(task), str(runtime), "/from/pythonpath"]


def test_runtime_import_loads_no_awslambdaric_or_framework() -> None:
    code = "import sys, vectorforge.runtime; print({'awslambdaric', 'fastapi', 'boto3'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
