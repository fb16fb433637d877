"""A Bedrock provider on a fake server, and the conversation sent by its tests."""

from typing import Any

import boto3

from tests.contract.suites.llm import MESSAGES
from tests.support.vendors.fake_bedrock import MODEL
from tests.support.vendors.fake_vendor import FakeVendor
from vectorforge.llm.providers.bedrock import BedrockProvider

SYSTEM, QUESTION = (message["content"] for message in MESSAGES)
CONVERSATION = [{"role": "user", "content": [{"text": QUESTION}]}]


def session(secret: str) -> boto3.session.Session:
    return boto3.session.Session("AKIATEST", secret, region_name="eu-central-1")


def bedrock(server: FakeVendor, **options: Any) -> BedrockProvider:
    values = {"default_model": MODEL, "base_url": server.base_url, "session": session(server.api_key)}
    return BedrockProvider(**{**values, **options})
