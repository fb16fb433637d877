"""Headless Chromium, checks of the page, and a scripted server."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

from tests.browser.stub_api import StubApi

CHROMIUM = next(
    (path for path in map(Path, ("/usr/bin/chromium-headless-shell", "/usr/bin/chromium")) if path.exists()),
    None,
)
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

PATIENCE_MS = 30_000
"""Time until an expectation fails, on a busy machine."""
expect.set_options(timeout=PATIENCE_MS)

Visit: TypeAlias = Callable[..., Awaitable[Page]]


@pytest.fixture(scope="session")
def chromium_path() -> Path:
    """Return Debian's Chromium; without it the tests are skipped, but fail in CI."""
    if CHROMIUM is None:
        (pytest.fail if "CI" in os.environ else pytest.skip)("chromium-headless-shell is not installed")
    return CHROMIUM


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(chromium_path: Path) -> AsyncIterator[Browser]:
    """Start one Chromium for all tests; each test gets its own context."""
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=chromium_path, args=ARGUMENTS)
        yield chromium
        await chromium.close()


class Watch:
    """Collects violations of a page: errors on the console, uncaught errors, requests to other origins."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.findings: list[str] = []
        self.failed_requests_expected = False

    def attach(self, page: Page) -> None:
        """Start collecting from a page."""
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.findings.append(f"uncaught: {error}"))
        page.on("request", lambda request: self._request(request.url))

    def _console(self, message: ConsoleMessage) -> None:
        # Chromium reports every 4xx and cut connection there; tests that cause one declare it
        if self.failed_requests_expected and message.text.startswith("Failed to load resource"):
            return
        if message.type in {"error", "warning"}:
            self.findings.append(f"{message.type}: {message.text} ({message.location['url']})")

    def _request(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"data", "blob"} and f"{parts.scheme}://{parts.netloc}" != self.origin:
            self.findings.append(f"request to another origin: {url}")


@pytest_asyncio.fixture(loop_scope="session")
async def visit(browser: Browser) -> AsyncIterator[Visit]:
    """Open pages: ``await visit(url, failed_requests=False, **context_options)``, each in a new context.

    When the test ends, any console error, uncaught error or request to another origin fails it.
    Request the server's fixture before this one, so that pages are closed before their server.
    """
    opened: list[tuple[Page, Watch]] = []

    async def open_page(url: str, *, failed_requests: bool = False, **options: Any) -> Page:
        context = await browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
        context.set_default_timeout(PATIENCE_MS)
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
    """Start the scripted server on a free port, with one empty collection named "handbook"."""
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
