"""The query function under a stage's URL: routes, redirects, the OpenAPI document, the web page."""

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import aiohttp
import pytest

from infra.emulator.lambda_service.function_process import FunctionProcess
from tests.support.aws.http_api import HttpApi
from tests.support.aws.live_query_function import QuerySurroundings, query_surroundings
from tests.support.aws.query_events import query_function
from tests.support.aws.rest_api import RestApi
from tests.support.http.live_api import key_of
from vectorforge.local.postgres import EmbeddedPostgres


@pytest.fixture
async def surroundings(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[QuerySurroundings]:
    async with query_surroundings(postgres_server.app_url, make_tenant()) as started:
        yield started


async def check_mounted(url: str, root_path: str, tenant: str) -> None:
    key = {"x-api-key": key_of(tenant)}
    async with aiohttp.ClientSession() as client:
        async with client.get(f"{url}/openapi.json") as response:
            assert response.status == 200
            assert (await response.json())["servers"] == [{"url": root_path}]
        async with client.get(f"{url}/", headers={"accept": "text/html"}) as response:
            page = await response.text()
            assert response.status == 200
        async with client.get(f"{url}/v1/providers") as response:
            assert response.status == 401
        async with client.get(f"{url}/v1/providers", headers=key) as response:
            assert response.status == 200
        async with client.get(f"{url}/v1/providers/", headers=key, allow_redirects=False) as response:
            assert response.headers["location"] == f"{url}/v1/providers"
    calls = re.findall(r"(?<!function )\b(?:fetch|upload)\(([^,)]+)", page)
    assert calls == ["base + path"] * 2


async def test_rest_api_stage_is_root_path_of_streams(surroundings: QuerySurroundings) -> None:
    async with (
        FunctionProcess(query_function(surroundings, "stream")) as process,
        RestApi(process, response_mode="stream", stage="prod") as front_door,
    ):
        await check_mounted(f"{front_door.url}/prod", "/prod", surroundings.tenant)


async def test_stage_is_root_path_of_both_apis_before_one_function(surroundings: QuerySurroundings) -> None:
    async with (
        FunctionProcess(query_function(surroundings, "buffered")) as process,
        RestApi(process, response_mode="buffered", stage="prod") as rest,
        HttpApi(process, stage="dev") as http,
    ):
        await check_mounted(f"{rest.url}/prod", "/prod", surroundings.tenant)
        await check_mounted(f"{http.url}/dev", "/dev", surroundings.tenant)


async def test_custom_domain_base_path_is_root_path(surroundings: QuerySurroundings) -> None:
    function = query_function(surroundings, "buffered")
    function = replace(function, environment={**function.environment, "VECTORFORGE_BASE_PATH": "rag/"})
    async with FunctionProcess(function) as process, HttpApi(process) as front_door:
        await check_mounted(f"{front_door.url}/rag", "/rag", surroundings.tenant)
