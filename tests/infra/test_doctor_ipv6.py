"""Hosts that a stage without IPv4 must reach, by its functions' settings."""

from pathlib import Path

import pytest

from infra.doctor.assembly import Assembly
from infra.doctor.machine import check_ipv6


def assembly(**variables: str) -> Assembly:
    resources = {
        "Gateway": {"Type": "AWS::EC2::EgressOnlyInternetGateway"},
        "Function": {
            "Type": "AWS::Lambda::Function",
            "Properties": {"Environment": {"Variables": variables}},
        },
    }
    return Assembly(Path(), {"App": {"Resources": resources}}, frozenset(), 30, "/cdk-bootstrap/version")


@pytest.mark.parametrize(
    ("variables", "host", "setting"),
    [
        ({"VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "openai"}, "api.openai.com", "EMBEDDING_PROVIDER"),
        ({"VECTORFORGE_DEFAULT_LLM_PROVIDER": "anthropic"}, "api.anthropic.com", "LLM_PROVIDER"),
        ({"VECTORFORGE_DEFAULT_LLM_PROVIDER": "cohere"}, "api.cohere.com", "LLM_PROVIDER"),
        ({}, "api.openai.com", "OpenAI"),
        (
            {
                "VECTORFORGE_DEFAULT_LLM_PROVIDER": "openai",
                "VECTORFORGE_OPENAI_BASE_URL": "https://[::1]:1/v1",
            },
            "::1",
            "OPENAI_BASE_URL",
        ),
        (
            {
                "VECTORFORGE_DEFAULT_LLM_PROVIDER": "openai",
                "VECTORFORGE_AZURE_OPENAI_ENDPOINT": "https://[::1]:1",
            },
            "::1",
            "AZURE_OPENAI_ENDPOINT",
        ),
    ],
)
def test_ipv6_check_names_setting_of_default_provider_host(
    variables: dict[str, str], host: str, setting: str
) -> None:
    details = {check.detail.split()[0]: check.detail for check in check_ipv6(assembly(**variables), {})}
    assert setting in details[host]
