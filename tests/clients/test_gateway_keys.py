"""Keys of API Gateway, as OpenAI's client sends them: docs/operate/front-doors.md."""

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from functions.authorizer.handler import handler as authorize
from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.emulator.lambda_service.proxy_events import ProxyRequest
from tests.support.aws.live_query_function import query_surroundings
from tests.support.aws.query_events import query_function
from tests.support.aws.rest_api import RestApi
from vectorforge.local.postgres import EmbeddedPostgres

GATEWAY_KEY, GATEWAY_KEY_ID = "ExampleKeyOfApiGateway0123456789", "k3yidacm3e"
CONVERSATION: Any = [{"role": "user", "content": "How long does a refund take?"}]
MODEL = "vectorforge/default"


class KeyedRestApi(RestApi):
    """A REST API whose key comes from ``functions/authorizer``, checked as by a usage plan."""

    def event(self, request: ProxyRequest) -> dict[str, Any]:
        """Return the event with the id of the key, if API Gateway has found one."""
        event = super().event(request)
        answer = authorize({"methodArn": "arn:aws:execute-api:...", "headers": event["headers"]}, None)
        if answer.get("usageIdentifierKey") == GATEWAY_KEY:
            event["requestContext"]["identity"]["apiKeyId"] = GATEWAY_KEY_ID
        return event


async def test_gateway_key_authenticates_the_openai_client(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> None:
    tenant = make_tenant()
    gateway_keys = json.dumps({GATEWAY_KEY_ID: tenant})
    keys = {"VECTORFORGE_API_KEYS": "{}", "VECTORFORGE_API_GATEWAY_KEYS": gateway_keys}
    in_x_api_key: Any = {"api_key": "-", "default_headers": {"x-api-key": GATEWAY_KEY}}
    async with (
        query_surroundings(postgres_server.app_url, tenant) as surroundings,
        FunctionProcess(query_function(surroundings, "stream", variables=keys)) as process,
        KeyedRestApi(process) as entrance,
    ):
        for options in ({"api_key": GATEWAY_KEY}, in_x_api_key):
            async with AsyncOpenAI(base_url=f"{entrance.url}/v1", max_retries=0, **options) as client:
                completion = await client.chat.completions.create(model=MODEL, messages=CONVERSATION)
                assert completion.choices[0].message.content == "The answer is 42 [1]."
        async with AsyncOpenAI(base_url=f"{entrance.url}/v1", api_key="wrong", max_retries=0) as stranger:
            with pytest.raises(openai.AuthenticationError):
                await stranger.chat.completions.create(model=MODEL, messages=CONVERSATION)
