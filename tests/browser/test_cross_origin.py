"""A page of another origin in Chromium: ``fetch`` with streaming, ``useChat`` and the ``openai`` client."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, Page, expect

from infra.emulator.lambda_service.function_process import FunctionProcess
from tests.clients.npm import installed_modules
from tests.support.aws.live_query_function import QuerySurroundings, query_surroundings
from tests.support.aws.query_events import query_function
from tests.support.aws.rest_api import RestApi
from tests.support.http.live_api import key_of
from tests.support.http.live_server import serve
from tests.support.vendors.fake_vendor import Reply
from vectorforge.api.app import create_app
from vectorforge.bootstrap import Application
from vectorforge.config import VectorForgeConfig
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

QUESTION = "How long does a refund take?"
PIECES = ("It takes", " five days", " [Source 1].")
PAGE = Path(__file__).with_name("cross_origin_page.jsx")


@pytest.fixture(scope="session")
def built_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the page's script from the published packages, and return its folder."""
    modules, folder = installed_modules(), tmp_path_factory.mktemp("cross-origin")
    options = ("--bundle", "--jsx=automatic", "--target=es2022", '--define:process.env.NODE_ENV="production"')
    command = (modules / ".bin" / "esbuild", PAGE, *options, f"--outfile={folder / 'page.js'}")
    environment = {"PATH": os.environ["PATH"], "NODE_PATH": str(modules)}
    subprocess.run(command, check=True, env=environment, capture_output=True)
    (folder / "index.html").write_text(
        '<!doctype html><title>Page</title><body><script src="page.js"></script>'
    )
    return folder


@pytest_asyncio.fixture(loop_scope="session")
async def page_port(built_page: Path) -> AsyncIterator[int]:
    """Serve the page on a port of every name of this machine."""
    app = web.Application()
    app.router.add_static("/", built_page)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@dataclass(frozen=True, slots=True)
class Opened:
    """The page of an allowed origin, and the server it uses."""

    page: Page
    surroundings: QuerySurroundings


@pytest_asyncio.fixture(
    loop_scope="session", params=["uvicorn", pytest.param("lambda", marks=pytest.mark.slow)]
)
async def opened(
    request: pytest.FixtureRequest,
    browser: Browser,
    page_port: int,
    postgres_server: EmbeddedPostgres,
    make_tenant: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Opened]:
    tenant = make_tenant()
    origin = f"http://localhost:{page_port}"
    async with query_surroundings(postgres_server.app_url, tenant) as surroundings, AsyncExitStack() as stack:
        environment = surroundings.environment(cors_origins=origin, limit_requests_per_minute="1000")
        if request.param == "uvicorn":
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            application = Application.build(VectorForgeConfig.from_environment())
            url = await stack.enter_async_context(serve(create_app(application)))
        else:
            function = query_function(surroundings, "stream", variables=environment)
            process = await stack.enter_async_context(FunctionProcess(function))
            url = (await stack.enter_async_context(RestApi(process))).url
        yield Opened(await open_page(stack, browser, origin, url, tenant), surroundings)


async def open_page(stack: AsyncExitStack, browser: Browser, origin: str, url: str, tenant: str) -> Page:
    context = await browser.new_context()
    stack.push_async_callback(context.close)
    context.set_default_timeout(30_000)
    page = await context.new_page()
    await page.goto(f"{origin}/index.html?{urlencode({'server': url, 'key': key_of(tenant)})}")
    await expect(page.locator("#status")).to_have_text("ready")
    return page


async def fetched(page: Page, path: str, body: Any = None, **options: Any) -> Any:
    return await page.evaluate("asked => askWithFetch(asked)", {"path": path, "body": body, **options})


async def test_cross_origin_fetch_streams_answer_and_reads_exposed_headers(opened: Opened) -> None:
    released = asyncio.Event()

    async def gate(number: int) -> None:
        if number == 1:
            await released.wait()

    opened.surroundings.vendor.script(Reply(texts=PIECES, gate=gate))
    query_task = asyncio.create_task(
        fetched(
            opened.page,
            "/v1/rag/query",
            {"query": QUESTION, "stream": True},
            headers={"idempotency-key": "key-of-the-page-1"},
        )
    )
    await asyncio.sleep(0.5)
    released.set()
    answer = await query_task
    assert answer["status"] == 200
    assert len(answer["pieces"]) > 1  # streamed while it was generated
    text = "".join(answer["pieces"])
    assert "five days" in text
    assert "event: done" in text
    assert answer["headers"]["x-request-id"]
    assert answer["headers"]["ratelimit"].startswith('"requests"')

    again = await fetched(
        opened.page,
        "/v1/rag/query",
        {"query": QUESTION, "stream": True},
        headers={"idempotency-key": "key-of-the-page-1"},
    )
    assert again["headers"]["idempotent-replayed"] == "true"


async def test_cross_origin_fetch_reads_error_body_and_request_id(opened: Opened) -> None:
    for path, body, options, status in (
        ("/v1/rag/query", {"query": QUESTION}, {"headers": {"authorization": "Bearer wrong"}}, 401),
        ("/v1/nothing", None, {"method": "GET"}, 404),
        ("/v1/rag/query", {"query": 7}, {}, 422),
    ):
        answer = await fetched(opened.page, path, body, **options)
        assert answer["status"] == status
        assert json.loads("".join(answer["pieces"]))
        assert answer["headers"]["x-request-id"]


async def test_openai_client_in_browser_streams_and_raises_typed_errors(opened: Opened) -> None:
    opened.surroundings.vendor.script(Reply(texts=PIECES))
    answer = await opened.page.evaluate("question => askWithOpenAI(question)", QUESTION)
    assert "".join(answer["pieces"]) == "It takes five days [1]."
    assert answer["models"]
    refused = await opened.page.evaluate("question => askWithOpenAI(question, 'wrong')", QUESTION)
    assert (refused["name"], refused["status"]) == ("AuthenticationError", 401)
    assert refused["requestID"]


async def test_use_chat_from_listed_origin_streams_answer_with_sources(opened: Opened) -> None:
    opened.surroundings.vendor.script(Reply(texts=PIECES))
    await opened.page.evaluate("question => sendMessage(question)", QUESTION)
    await expect(opened.page.locator("#status")).to_have_text("ready")
    await expect(opened.page.locator("#answer")).to_have_text("It takes five days [1].")
    await expect(opened.page.locator("#sources")).to_have_text("1")
    await expect(opened.page.locator("#error")).to_be_empty()


async def test_page_of_unlisted_origin_reads_no_response(opened: Opened, browser: Browser) -> None:
    listed = opened.page.url
    async with AsyncExitStack() as stack:
        context = await browser.new_context()
        stack.push_async_callback(context.close)
        page = await context.new_page()
        await page.goto(listed.replace("localhost", "127.0.0.1", 1))  # same port, another host
        requests: list[tuple[str, dict[str, Any] | None, dict[str, Any]]] = [
            ("/health", None, {"method": "GET"}),
            ("/v1/rag/query", {"query": QUESTION}, {}),
        ]
        for path, body, options in requests:
            failed = await page.evaluate(
                "asked => askWithFetch(asked).then(() => null, (error) => error.name)",
                {"path": path, "body": body, **options},
            )
            assert failed == "TypeError"
    assert opened.surroundings.vendor.requests == []
