"""Anthropic's models on Vertex AI: the Messages API at Google's addresses, with Google's tokens.

https://docs.claude.com/en/api/claude-on-vertex-ai
"""

from typing import Any

from aiohttp import web

from tests.support.vendors.fake_anthropic import FakeAnthropic

PROJECT, REGION = "example-project", "europe-west1"
_PATH = f"/v1/projects/{PROJECT}/locations/{REGION}/publishers/anthropic/models"


class FakeVertex(FakeAnthropic):
    """``POST .../models/{model}:rawPredict`` and ``:streamRawPredict``; the key is Google's access token."""

    base_path = "/v1"
    generation_paths = (
        f"{_PATH}/{{model:[^/:]+}}:rawPredict",
        f"{_PATH}/{{model:[^/:]+}}:streamRawPredict",
    )
    models_paths = ()

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        if request.match_info["model"] != "count-tokens":
            return await super()._generate(request)
        if not self.accepts(request, await request.read()):
            return self._wrong_key(request)
        return web.json_response({"input_tokens": 8})

    def check(self, request: web.Request, body: Any) -> None:
        """Reject a body with a model or without a version, and a stream at the wrong address."""
        if not body.get("anthropic_version"):
            raise ValueError("anthropic_version: Field required")
        if "model" in body:
            raise ValueError("model: Extra inputs are not permitted")
        if bool(body.get("stream")) != request.path.endswith(":streamRawPredict"):
            raise ValueError("stream: not at this address")
        sent = {name: value for name, value in body.items() if name != "anthropic_version"}
        self.check_message({**sent, "model": request.match_info["model"]})
