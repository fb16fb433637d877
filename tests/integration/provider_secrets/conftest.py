"""Provider keys in Secrets Manager and SSM, and vendors that check them."""

import asyncio
import uuid
from typing import Any

import pytest

from tests.support.aws.fake_aws_faults import FaultyAws
from tests.support.http.live_api import settings_for
from vectorforge.bootstrap import Application
from vectorforge.config import AwsSettings, EmbeddingSettings, LLMSettings

VENDORS = ("openai", "anthropic", "google", "embedding")
OLD, NEW = "sk-old-canary-0123456789", "sk-new-canary-0123456789"


@pytest.fixture
def secret_id(aws: FaultyAws) -> str:
    """Create a secret with the key of every vendor; return its id."""
    name = f"vectorforge/{uuid.uuid4().hex[:8]}"
    aws.put_secret(name, {f"{vendor}_api_key": OLD for vendor in VENDORS})
    return name


async def build(
    *,
    secret_id: str | None = None,
    path: str | None = None,
    max_age_s: int = 300,
    embedding: dict[str, Any] | None = None,
    **llm: Any,
) -> Application:
    """Build the application as a function does, off the event loop of the fakes, without a database."""
    config = settings_for(
        "postgresql://nobody@127.0.0.1:1/nothing",
        llm=LLMSettings(llm_max_retries=0, **llm),
        embedding=EmbeddingSettings(**(embedding or {})),
        aws=AwsSettings(
            provider_secret_id=secret_id, provider_parameter_path=path, secret_max_age_s=max_age_s
        ),
    )
    return await asyncio.to_thread(Application.build, config)
