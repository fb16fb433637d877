"""The official MCP client, over HTTP with a tenant's key or over a process's stdin and stdout."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.http.live_api import key_of
from tests.support.http.tls import NO_AUTHORITIES

MODES = {"auto": "2026-07-28", "legacy": "2025-11-25"}
"""Modes of ``mcp.Client`` and their protocol versions: without and with a handshake."""


@asynccontextmanager
async def mcp_client(url: str, tenant: str | None, *, mode: str = "auto") -> AsyncIterator[Client]:
    """A connected client.

    Args:
        url: Base URL of the server, without ``/mcp``.
        tenant: Tenant whose key is sent, or None for no key.
        mode: One of ``MODES``.
    """
    headers = {} if tenant is None else {"Authorization": f"Bearer {key_of(tenant)}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30, verify=NO_AUTHORITIES) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client
