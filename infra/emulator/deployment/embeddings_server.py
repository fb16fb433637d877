"""The local embedding model behind ``POST /v1/embeddings``, for functions without a bundled model.

    python -m infra.emulator.deployment.embeddings_server --port 8001

OpenAI's shape: https://platform.openai.com/docs/api-reference/embeddings/create
"""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.errors import EmbeddingError, EmbeddingInputError, UnknownModelError

_MAX_TEXTS = 2048  # OpenAI's


class EmbeddingsRequest(BaseModel):
    """Fields of the request that the functions' provider sends."""

    model: str
    input: Annotated[list[str], Field(min_length=1, max_length=_MAX_TEXTS)]


def embeddings_app(provider: EmbeddingProvider) -> FastAPI:
    """Return an app that embeds with a provider, and closes it at shutdown."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await provider.aclose()

    app = FastAPI(lifespan=lifespan, openapi_url=None)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/v1/embeddings")
    async def embeddings(body: EmbeddingsRequest) -> Any:
        try:
            vectors = await provider.embed_documents(body.input, model=body.model)
        except UnknownModelError as exc:
            return _error(404, exc.message)
        except EmbeddingInputError as exc:
            return _error(400, exc.message)
        except EmbeddingError as exc:
            return _error(500, exc.message)
        data = [
            {"object": "embedding", "index": index, "embedding": list(vector)}
            for index, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": 0, "total_tokens": 0}  # not billed
        return {"object": "list", "data": data, "model": body.model, "usage": usage}

    return app


def _error(status: int, message: str) -> JSONResponse:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return JSONResponse({"error": error}, status)


def main() -> None:
    """Serve on 127.0.0.1 until SIGTERM."""
    import uvicorn

    from vectorforge.config import VectorForgeConfig
    from vectorforge.embedding.providers.local import LocalEmbeddingProvider

    parser = argparse.ArgumentParser(prog="python -m infra.emulator.deployment.embeddings_server")
    parser.add_argument("--port", type=int, required=True)
    config = VectorForgeConfig.from_environment()
    provider = LocalEmbeddingProvider(cache_dir=config.embedding.model_cache_dir)
    uvicorn.run(
        embeddings_app(provider),
        host="127.0.0.1",
        port=parser.parse_args().port,
        log_level="warning",
        access_log=False,
    )


if __name__ == "__main__":
    main()
