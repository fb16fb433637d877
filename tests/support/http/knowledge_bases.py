"""boto3's client of Bedrock's Knowledge Bases, pointed at a server of ours."""

import asyncio
from collections.abc import Callable
from typing import Any

import boto3
from botocore.config import Config

from tests.support.http.live_api import key_of

KNOWLEDGE_BASE = "KBHANDBOOK"
MODEL_ARN = "arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-3-haiku-20240307-v1:0"
ASKED = "How long must the dough rise?"


def knowledge_base_client(url: str, tenant: str, **given: Any) -> Any:
    """Return a client whose access key id is the tenant's API key; close it after use.

    Args:
        url: Address of the server.
        tenant: Tenant with a key as in ``live_api``.
        **given: Other arguments of ``boto3.client``.
    """
    options = {"aws_access_key_id": key_of(tenant), "aws_secret_access_key": "unused", **given}
    config = Config(retries={"total_max_attempts": 1, "mode": "standard"}, read_timeout=20)
    return boto3.Session().client(
        "bedrock-agent-runtime",
        **{"region_name": "us-east-1", "endpoint_url": f"{url}/bedrock", "config": config, **options},
    )


async def call(operation: Callable[..., Any], **parameters: Any) -> Any:
    """Call an operation, which blocks, in a thread."""
    return await asyncio.to_thread(operation, **parameters)


def question(text: str = ASKED, *, search: Any = None, **settings: Any) -> dict[str, Any]:
    """Return the parameters of ``retrieve_and_generate``.

    Args:
        text: The query.
        search: Vector search configuration.
        **settings: Other settings of the knowledge base.
    """
    chosen = {"knowledgeBaseId": KNOWLEDGE_BASE, "modelArn": MODEL_ARN, **settings}
    if search is not None:
        chosen["retrievalConfiguration"] = {"vectorSearchConfiguration": search}
    configuration = {"type": "KNOWLEDGE_BASE", "knowledgeBaseConfiguration": chosen}
    return {"input": {"text": text}, "retrieveAndGenerateConfiguration": configuration}
