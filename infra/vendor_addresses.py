"""Vendors' hosts that are known to have IPv6 addresses, which decides on NAT.

Egress by IPv6 alone costs nothing, and reaches no host without IPv6. An entry needs a source: the vendor's
documentation, or an address in a report. A host that is missing here may have some.
"""

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

IPV6_SOURCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "api.anthropic.com": "https://platform.claude.com/docs/en/api/ip-addresses",  # 2607:6bc0::/48
        # 2404:6800:4012:7::200a, reported on 2025-08-14
        "generativelanguage.googleapis.com": "https://github.com/firecrawl/open-lovable/issues/66",
    }
)
"""Host with IPv6 addresses -> source."""

AWS_DUAL_STACK = ".api.aws"
"""AWS's dual-stack hosts: https://docs.aws.amazon.com/sdkref/latest/guide/feature-endpoints.html."""

_HOSTS: Final = MappingProxyType(
    {
        "openai": "api.openai.com",  # 2025-03-11: IPv4 only, https://github.com/jehna/humanify/issues/366
        "anthropic": "api.anthropic.com",
        "google": "generativelanguage.googleapis.com",
        "cohere": "api.cohere.com",
        "bedrock": "bedrock-runtime.{region}.api.aws",
    }
)
"""Provider -> its host without a base URL. Providers that are left out need a base URL."""
_ELSEWHERE: Final = MappingProxyType(
    {
        "openai": {"VECTORFORGE_OPENAI_BASE_URL", "VECTORFORGE_AZURE_OPENAI_ENDPOINT"},
        "anthropic": {"VECTORFORGE_ANTHROPIC_BASE_URL", "VECTORFORGE_VERTEX_PROJECT"},
        "google": {"VECTORFORGE_GOOGLE_BASE_URL"},
        "cohere": {"VECTORFORGE_COHERE_BASE_URL"},
        "bedrock": {"VECTORFORGE_BEDROCK_BASE_URL"},
    }
)
"""Settings that replace that host."""
_VERTEX = "aiplatform.googleapis.com"


def vendor_hosts(environment: Mapping[str, str]) -> list[str]:
    """Return the hosts of the vendors that a stage's settings name, in the order of their names.

    Providers default to OpenAI, as in ``infra.data.provider_keys``. Keys in the secret are not known here.
    """
    found = {host for provider in _providers(environment) for host in hosts_of(provider, environment)}
    for value in environment.values():
        if value.startswith(("https://", "http://")) and (host := urlsplit(value).hostname):
            found.add(host)
    return sorted(found)


def without_known_ipv6(environment: Mapping[str, str]) -> list[str]:
    """Return those of ``vendor_hosts`` that no source says to have IPv6 addresses."""
    return [
        host
        for host in vendor_hosts(environment)
        if host not in IPV6_SOURCES and not host.endswith(AWS_DUAL_STACK)
    ]


def _providers(environment: Mapping[str, str]) -> Iterator[str]:
    for kind in ("EMBEDDING", "LLM"):
        yield environment.get(f"VECTORFORGE_DEFAULT_{kind}_PROVIDER", "openai")
    try:
        fallbacks = json.loads(environment.get("VECTORFORGE_LLM_FALLBACKS", "[]"))
    except ValueError:  # the functions report it
        return
    for fallback in fallbacks:
        yield str(fallback).partition(":")[0]


def hosts_of(provider: str, environment: Mapping[str, object]) -> Iterator[str]:
    """Yield a provider's own host, unless the settings name another or it has none."""
    if provider == "anthropic" and "VECTORFORGE_VERTEX_PROJECT" in environment:
        yield _VERTEX
    elif provider in _HOSTS and not _ELSEWHERE[provider] & environment.keys():
        yield _HOSTS[provider]
