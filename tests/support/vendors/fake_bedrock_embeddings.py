"""Embedding models on Amazon Bedrock: ``InvokeModel``, with bodies checked against AWS's documentation."""

import asyncio
from collections import deque
from typing import Any, Literal, Self

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tests.support.aws.aws_signature import is_signed
from tests.support.vendors.hashing_embedder import hashed_vector


class _Titan(BaseModel):
    """Titan: https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-titan-embed-text.html."""

    model_config = ConfigDict(extra="forbid", strict=True)

    inputText: str = Field(min_length=1, max_length=50_000)  # noqa: N815 - AWS's name
    dimensions: Literal[256, 512, 1024] = 1024
    normalize: bool = True
    embeddingTypes: list[Literal["float", "binary"]] = ["float"]  # noqa: N815 - AWS's name

    def answer(self) -> dict[str, Any]:
        vector = hashed_vector(self.inputText, self.dimensions)
        return {
            "embedding": vector,
            "inputTextTokenCount": 3,
            "embeddingsByType": {"float": vector},
        }


class _CohereV3(BaseModel):
    """Cohere v3: https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-embed-v3.html."""

    model_config = ConfigDict(extra="forbid", strict=True)

    texts: list[str] = Field(min_length=1, max_length=96)
    input_type: Literal["search_document", "search_query", "classification", "clustering"]
    embedding_types: list[Literal["float", "int8", "uint8", "binary", "ubinary"]]
    truncate: Literal["NONE", "START", "END"] = "NONE"

    @property
    def dimension(self) -> int:
        return 1024

    def answer(self) -> dict[str, Any]:
        """Return vectors; a query has an extra word, so that its vector differs from a document's."""
        prefix = "question " if self.input_type == "search_query" else ""
        vectors = [hashed_vector(prefix + text, self.dimension) for text in self.texts]
        return {
            "id": "1",
            "texts": self.texts,
            "response_type": "embeddings_by_type",
            "embeddings": {"float": vectors},
        }


class _CohereV4(_CohereV3):
    """Cohere v4: https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-embed-v4.html."""

    truncate: Literal["NONE", "LEFT", "RIGHT"] = "NONE"  # type: ignore[assignment]  # other words than V3
    output_dimension: Literal[256, 512, 1024, 1536] = 1536

    @property
    def dimension(self) -> int:
        return self.output_dimension


_MODELS: dict[str, type[_Titan | _CohereV3]] = {
    "amazon.titan-embed-text-v2:0": _Titan,
    "cohere.embed-v4:0": _CohereV4,
    "eu.cohere.embed-v4:0": _CohereV4,
    "cohere.embed-multilingual-v3": _CohereV3,
}


class FakeBedrockEmbeddings:
    """Use as ``async with FakeBedrockEmbeddings() as server``; requests must be signed with ``secret``."""

    def __init__(self, *, secret: str = "the-roles-secret") -> None:  # noqa: S107 - of this server
        self.secret = secret
        self.base_url = ""
        """Set once the server runs."""
        self.requests: list[tuple[str, Any]] = []
        """(model, body) of each authenticated request, in the order of arrival."""
        self.failures: deque[tuple[int, str, dict[str, str]]] = deque()
        """(status, error type, headers) for the next requests, one each; then they are answered."""
        self.cuts_off = 0
        """Number of next responses that end midway."""
        self.delay_s = 0.0
        self.most_at_once = 0
        """Highest number of concurrent requests."""
        self._now = 0
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/model/{model}/invoke", self._invoke)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _invoke(self, request: web.Request) -> web.StreamResponse:
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            await asyncio.sleep(self.delay_s)
            return await self._respond(request)
        finally:
            self._now -= 1

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        model = request.match_info["model"]
        if not is_signed(request, await request.read(), secret=self.secret, service="bedrock"):
            return _error(403, "UnrecognizedClientException", "The security token is invalid.")
        body = await request.json()
        self.requests.append((model, body))
        if self.failures:
            status, kind, headers = self.failures.popleft()
            return _error(status, kind, f"Something about {body}", headers)
        if model not in _MODELS:
            return _error(404, "ResourceNotFoundException", "Could not resolve the foundation model.")
        try:
            answer = web.json_response(_MODELS[model].model_validate(body).answer())
        except ValidationError as exc:
            return _error(400, "ValidationException", f"Malformed input request: {exc}")
        if self.cuts_off:
            self.cuts_off -= 1
            return await _cut_off(request, answer)
        return answer


async def _cut_off(request: web.Request, answer: web.Response) -> web.StreamResponse:
    data = answer.body if isinstance(answer.body, bytes) else b""
    response = web.StreamResponse(headers={"content-type": "application/json"})
    response.content_length = len(data)
    await response.prepare(request)
    await response.write(data[: len(data) // 2])
    await asyncio.sleep(0.02)  # written data is sent first
    if request.transport is not None:
        request.transport.abort()
    return response


def _error(status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response(
        {"message": message}, status=status, headers={"x-amzn-ErrorType": kind, **(headers or {})}
    )
