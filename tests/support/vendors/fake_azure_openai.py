"""Azure OpenAI: OpenAI's protocol at Azure's addresses, with a key or a token of Entra ID.

https://learn.microsoft.com/azure/ai-foundry/openai/reference
"""

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from tests.support.vendors.fake_openai import FakeOpenAI


class FakeAzureOpenAI(FakeOpenAI):
    """``POST /openai/deployments/{deployment}/chat/completions`` and ``GET /openai/models``."""

    base_path = ""
    generation_paths = ("/openai/deployments/{deployment}/chat/completions",)
    models_paths = ("/openai/models",)

    def __init__(self, *, token: str = "", api_version: str = "2024-10-21", **options: Any) -> None:
        """Configure the server.

        Args:
            token: Accepted in ``Authorization``, in addition to the key in ``api-key``; empty accepts none.
            api_version: The only supported version.
            **options: See ``FakeVendor``.
        """
        super().__init__(**options)
        self.token = token
        self.api_version = api_version

    def accepts(self, request: web.Request, data: bytes) -> bool:
        """Return whether the request has either the key or the token."""
        sent = (request.headers.get("api-key"), request.headers.get("Authorization"))
        return sent == (None, f"Bearer {self.token}") if self.token else sent == (self.api_key, None)

    def check(self, request: web.Request, body: Any) -> None:
        """Reject other versions, and a deployment that differs from the body's."""
        if request.query.get("api-version") != self.api_version:
            raise ValueError("API version not supported")
        if request.match_info["deployment"] != body["model"]:
            raise ValueError("the deployment is not the one of the body")
        super().check(request, body)

    def error_body(
        self, status: int, message: str, param: str | None = None, code: str | None = None
    ) -> Mapping[str, Any]:
        """Return OpenAI's error; a wrong key has the status as its code."""
        return super().error_body(status, message, param, code or (str(status) if status == 401 else None))
