"""A server that reranks as Cohere and Hugging Face's TEI do, by counting shared words."""

import asyncio
import re
from collections import deque
from typing import Any, Self

from aiohttp import web

_WORD = re.compile(r"\w+")


class FakeReranker:
    """``POST /v2/rerank`` as Cohere documents it, ``POST /rerank`` as TEI does, on a real socket.

    https://docs.cohere.com/reference/rerank
    https://huggingface.github.io/text-embeddings-inference/#/Text%20Embeddings%20Inference/rerank

    Args:
        api_key: Key required in the Authorization header; empty: requests must not have the header.
        largest_batch: Maximum number of texts per request of TEI.
    """

    def __init__(self, *, api_key: str = "rerank-key-0123456789", largest_batch: int = 32) -> None:
        self.api_key = api_key
        self._largest_batch = largest_batch
        self._runner: web.AppRunner | None = None
        self.origin = ""
        self.bodies: list[dict[str, Any]] = []
        """Bodies of all requests, in the order of arrival."""
        self.replies: deque[web.Response | None] = deque()
        """Responses to the next requests; None closes the connection without a response."""
        self.delay_s = 0.0

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v2/rerank", self._cohere)
        app.router.add_post("/rerank", self._tei)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.origin = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _cohere(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if (early := await self._early(request, body)) is not None:
            return early
        if not isinstance(body.get("model"), str) or body.keys() - {"model", "query", "documents", "top_n"}:
            return web.json_response({"message": "invalid request"}, status=400)
        scores = _scores(body["query"], body["documents"])
        results = [{"index": index, "relevance_score": score} for index, score in scores]
        return web.json_response({"id": "1", "results": results[: body["top_n"]], "meta": {}})

    async def _tei(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if (early := await self._early(request, body)) is not None:
            return early
        if body.keys() - {"query", "texts", "truncate", "raw_scores", "return_text"}:
            return web.json_response({"error": "unknown field", "error_type": "Validation"}, status=422)
        if len(body["texts"]) > self._largest_batch:
            return web.json_response({"error": "batch size", "error_type": "Validation"}, status=422)
        scores = _scores(body["query"], body["texts"])
        return web.json_response([{"index": index, "score": score} for index, score in scores])

    async def _early(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse | None:
        self.bodies.append(body)
        await asyncio.sleep(self.delay_s)
        if self.replies:
            reply = self.replies.popleft()
            if reply is None and request.transport is not None:
                request.transport.abort()
            return reply or web.Response(status=500)
        wanted = f"Bearer {self.api_key}" if self.api_key else None
        if request.headers.get("Authorization") != wanted:
            return web.json_response({"message": "invalid api token"}, status=401)
        return None


def _scores(query: str, texts: list[str]) -> list[tuple[int, float]]:
    """Return the share of the query's words in each text, best first, as both servers do."""
    wanted = set(_WORD.findall(query.lower()))
    scores = [
        (n, len(wanted & set(_WORD.findall(text.lower()))) / len(wanted)) for n, text in enumerate(texts)
    ]
    return sorted(scores, key=lambda pair: -pair[1])
