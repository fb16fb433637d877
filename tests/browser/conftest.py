"""Headless Chromium, a page that must stay clean, and a scripted server to show it."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright

from tests.browser.stub_api import StubApi

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

Visit: TypeAlias = Callable[..., Awaitable[Page]]


@pytest.fixture(scope="session")
def chromium_path() -> Path:
    """Debian's Chromium; where it is not installed the tests are skipped, but not in CI."""
    if not CHROMIUM.exists() and "CI" not in os.environ:
        pytest.skip(f"{CHROMIUM} is not installed")
    return CHROMIUM


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(chromium_path: Path) -> AsyncIterator[Browser]:
    """One Chromium for all tests; each test gets its own context."""
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=chromium_path, args=ARGUMENTS)
        yield chromium
        await chromium.close()


class Watch:
    """Collects what a page must not do: errors on the console, uncaught errors, requests to other origins."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.findings: list[str] = []
        self.failed_requests_expected = False

    def attach(self, page: Page) -> None:
        """Listen from now on."""
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.findings.append(f"uncaught: {error}"))
        page.on("request", lambda request: self._request(request.url))

    def _console(self, message: ConsoleMessage) -> None:
        # Chromium reports every 4xx and cut connection there; tests that cause one say so
        if self.failed_requests_expected and message.text.startswith("Failed to load resource"):
            return
        if message.type in {"error", "warning"}:
            self.findings.append(f"{message.type}: {message.text}")

    def _request(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"data", "blob"} and f"{parts.scheme}://{parts.netloc}" != self.origin:
            self.findings.append(f"request to another origin: {url}")


@pytest_asyncio.fixture(loop_scope="session")
async def visit(browser: Browser) -> AsyncIterator[Visit]:
    """``await visit(url, failed_requests=False, **context_options)`` opens a page in a fresh context.

    When the test ends, any console error, uncaught error or request to another origin fails it.
    A test names its server's fixture before this one, so that pages are closed before their server is.
    """
    opened: list[tuple[Page, Watch]] = []

    async def open_page(url: str, *, failed_requests: bool = False, **options: Any) -> Page:
        context = await browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
        context.set_default_timeout(10_000)
        page = await context.new_page()
        parts = urlsplit(url)
        watch = Watch(f"{parts.scheme}://{parts.netloc}")
        watch.failed_requests_expected = failed_requests
        watch.attach(page)
        opened.append((page, watch))
        await page.goto(url)
        return page

    yield open_page
    findings = [finding for _, watch in opened for finding in watch.findings]
    for page, _ in opened:
        await page.context.close()
    assert findings == []


@pytest_asyncio.fixture(loop_scope="session")
async def stub() -> AsyncIterator[StubApi]:
    """The scripted server on a free port, with one empty collection named "handbook"."""
    api = StubApi()
    api.add_collection("handbook")
    runner = web.AppRunner(api.application(), handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    api.url = f"http://{host}:{port}"
    yield api
    await runner.cleanup()
