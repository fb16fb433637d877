"""The query function as a process of its own: its settings, its events, and a document to ask about."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vectorforge.config import VectorForgeConfig
from vectorforge.local.lambda_service.function_configuration import (
    AWSLAMBDARIC_COMMAND,
    RUNTIME_COMMAND,
    FunctionConfiguration,
)
from vectorforge.local.lambda_service.invocation import Invocation
from vectorforge.local.lambda_service.proxy_responses import STREAM_CONTENT_TYPE
from vectorforge.testing.fake_embeddings import FakeEmbeddingsServer
from vectorforge.testing.live_api import build_application, settings_for
from vectorforge.types import ChunkDraft, DistanceMetric, DocumentDraft

ROOT = Path(__file__).parents[3]
HANDLER = "functions.query.handler.handler"
API_KEY = "example-key-of-the-tenant-acme"
"""The one in the events."""
EMBEDDING_KEY = "embedding-key"
DIMENSION = 64

Event = dict[str, Any]


def load_event(name: str, *, body: Mapping[str, Any] | None = None, **headers: str) -> Event:
    """An event of ``events/``.

    Args:
        name: File name without ``.json``.
        body: Replaces the body.
        **headers: Added; underscores stand for hyphens.
    """
    event: Event = json.loads((ROOT / "events" / f"{name}.json").read_text())
    if body is not None:
        event["body"] = json.dumps(body)
    for header, value in headers.items():
        header = header.replace("_", "-")
        event["headers"][header] = value
        if "multiValueHeaders" in event:
            event["multiValueHeaders"][header] = [value]
    return event


def query_environment(
    database_url: str, tenant: str, embeddings: FakeEmbeddingsServer, **more: str
) -> dict[str, str]:
    """Settings of a function whose tenant has ``API_KEY``.

    Args:
        database_url: Of the app role.
        tenant: Who asks.
        embeddings: Must take ``EMBEDDING_KEY`` and have ``DIMENSION``.
        **more: Other variables, by their whole name.
    """
    return {
        "VECTORFORGE_DATABASE_URL": database_url,
        "VECTORFORGE_API_KEYS": json.dumps({hashlib.sha256(API_KEY.encode()).hexdigest(): tenant}),
        "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "http",
        "VECTORFORGE_EMBEDDING_BASE_URL": embeddings.base_url,
        "VECTORFORGE_EMBEDDING_MODEL": "fake-embeddings",
        "VECTORFORGE_EMBEDDING_DIMENSION": str(DIMENSION),
        "VECTORFORGE_EMBEDDING_API_KEY": EMBEDDING_KEY,
        "PYTHONWARNINGS": "error",
        **more,
    }


def buffered(environment: Mapping[str, str], **options: Any) -> FunctionConfiguration:
    """The function under AWS's own runtime."""
    return FunctionConfiguration(
        handler=HANDLER,
        environment={"VECTORFORGE_RESPONSE_MODE": "buffered", **environment},
        command=AWSLAMBDARIC_COMMAND,
        name="vectorforge-query",
        task_root=ROOT,
        **options,
    )


def streaming(environment: Mapping[str, str], **options: Any) -> FunctionConfiguration:
    """The function under our runtime."""
    return FunctionConfiguration(
        handler=HANDLER,
        environment={"VECTORFORGE_RESPONSE_MODE": "stream", **environment},
        command=RUNTIME_COMMAND,
        name="vectorforge-query",
        task_root=ROOT,
        **options,
    )


async def response_of(invocation: Invocation) -> tuple[int, dict[str, str], str]:
    """Status, headers by lower-case name and body, buffered or streamed.

    Raises:
        FunctionFailedError: The function failed.
    """
    await invocation.ended.wait()
    if invocation.error is None and invocation.content_type == STREAM_CONTENT_TYPE:
        prelude, _, body = invocation.body.partition(b"\0" * 8)
        answer, text = json.loads(prelude), body.decode()
    else:
        answer = await invocation.result()
        text = answer["body"]
    return answer["statusCode"], {k.lower(): v for k, v in answer["headers"].items()}, text


async def add_refund_document(database_url: str, tenant: str) -> None:
    """Put a document where the events' question finds it, embedded as the fake server embeds."""
    application = build_application(settings_for(database_url))
    async with application:
        services = application.for_tenant(tenant)
        collection = await services.collections.create(
            VectorForgeConfig().query.default_collection,
            embedding_provider="http",
            embedding_model="fake-embeddings",
            dimension=DIMENSION,
            distance_metric=DistanceMetric.COSINE,
        )
        embedder = application.embedding_registry.get_default()
        text = "How long does a refund take? A refund does take five days."
        digest = hashlib.sha256(text.encode()).digest()
        draft = ChunkDraft(0, text, 0, len(text), 6, digest, vector=await embedder.embed_query(text))
        document = DocumentDraft("refunds.txt", text, "text/plain", digest)
        await services.vector_store.replace_document(collection.id, document, [draft])
