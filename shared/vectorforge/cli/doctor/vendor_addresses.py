"""Whether functions without IPv4 can reach the vendors: a host needs an IPv6 address for it."""

import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Literal
from urllib.parse import urlsplit

from vectorforge.cli.doctor.check import Check
from vectorforge.cli.doctor.deployment_files import Assembly

_VENDORS = {"api.openai.com": "OpenAI", "api.anthropic.com": "Anthropic"}
"""Reached when no setting says otherwise; nothing is known here of the keys in the deployed secret."""
_DEFAULTS = {"openai": "api.openai.com", "anthropic": "api.anthropic.com"}
"""The vendor's host, where a function's default provider has no address of its own."""
_ELSEWHERE = {
    "openai": {"VECTORFORGE_OPENAI_BASE_URL", "VECTORFORGE_AZURE_OPENAI_ENDPOINT"},
    "anthropic": {"VECTORFORGE_ANTHROPIC_BASE_URL", "VECTORFORGE_VERTEX_PROJECT"},
}
"""Settings by which a provider does not ask that host."""

Found = Literal["ipv6", "ipv4", "unknown"]


def check_ipv6(assembly: Assembly, services: Mapping[str, str]) -> Iterator[Check]:
    """One check for each host that functions call over the internet.

    Args:
        assembly: Only of one whose functions have no IPv4 way out something is said.
        services: Hosts of AWS services -> the service's name.
    """
    if not assembly.ipv6_only:
        return
    configured = dict(_configured_hosts(assembly))
    hosts = {**_VENDORS, **services, **configured}
    with ThreadPoolExecutor(len(hosts)) as pool:
        found = dict(zip(hosts, pool.map(addresses, hosts), strict=True))
    for host, name in hosts.items():
        needed = host not in _VENDORS or host in configured
        yield _check(host, name, found[host], needed=needed)


def addresses(host: str) -> Found:
    """Which addresses the system's resolver knows; "unknown" when it knows neither, as without a network."""
    for family, name in ((socket.AF_INET6, "ipv6"), (socket.AF_INET, "ipv4")):
        try:
            socket.getaddrinfo(host, 443, family, socket.SOCK_STREAM)
        except (OSError, UnicodeError):  # UnicodeError: a label that is too long
            continue
        return "ipv6" if name == "ipv6" else "ipv4"
    return "unknown"


def _configured_hosts(assembly: Assembly) -> Iterator[tuple[str, str]]:
    for function in assembly.of_type("AWS::Lambda::Function"):
        variables = function.get("Environment", {}).get("Variables", {})
        for kind in ("EMBEDDING", "LLM"):
            provider = variables.get(setting := f"VECTORFORGE_DEFAULT_{kind}_PROVIDER")
            if provider in _DEFAULTS and not _ELSEWHERE[provider] & variables.keys():
                yield _DEFAULTS[provider], setting
        for name, value in variables.items():
            if name.endswith(("_BASE_URL", "_ENDPOINT")) and isinstance(value, str):
                try:
                    host = urlsplit(value).hostname
                except ValueError:
                    host = None
                if host:
                    yield host, name


def _check(host: str, name: str, found: Found, *, needed: bool) -> Check:
    if found == "ipv6":
        return Check("ipv6", "ok", f"{host} ({name}) has an IPv6 address")
    if found == "unknown":
        detail = f"{host} ({name}) could not be looked up from here"
        return Check("ipv6", "warn", detail, f"Look with `getent ahostsv6 {host}` where there is a network.")
    detail = f"{host} ({name}) has no IPv6 address, and this stage's functions have no other way out"
    remedy = 'Set egress to "nat" in infra/settings.py, or use a vendor that has one.'
    return Check("ipv6", "fail" if needed else "warn", detail, remedy)
