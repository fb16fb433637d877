"""Checks of this machine: Node, the CDK command line, synthesized code, IPv6 addresses of hosts."""

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from infra.doctor.assembly import Assembly
from infra.doctor.report import Check
from infra.vendor_addresses import AWS_DUAL_STACK, hosts_of

_LEAST_NODE = 20  # "engines" of aws-cdk-lib 2.275, which runs in Node also when Python calls it
_SUPPORTED_NODE = 22  # https://nodejs.org/en/about/previous-releases
_INSTALL = "npm ci --prefix infra"


def check_tools(project: Path | None) -> Iterator[Check]:
    """Check Node and the CDK command line in the version that infra/package.json pins."""
    yield _node()
    if project is None:
        yield Check(
            "cdk", "fail", "this folder is not in a checkout of VectorForge", "Run it where cdk.json is."
        )
        return
    yield _cdk(project)


def _node() -> Check:
    name, remedy = "node", f"Install Node.js {_SUPPORTED_NODE} or newer: https://nodejs.org/en/download"
    program = shutil.which("node")
    if program is None:
        return Check(name, "fail", "node is not on PATH", remedy)
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=False)  # noqa: S603 - fixed arguments
    except (OSError, subprocess.TimeoutExpired):
        return Check(name, "fail", f"{program} does not run", remedy)
    found = re.fullmatch(r"v(\d+)\.\S+", done.stdout.strip())
    if found is None:
        return Check(name, "fail", f"{program} does not print its version", remedy)
    version, major = found[0], int(found[1])
    if major < _LEAST_NODE:
        return Check(name, "fail", version, remedy)
    if major < _SUPPORTED_NODE:
        return Check(name, "warn", f"{version} works, but is no longer supported", remedy)
    return Check(name, "ok", version)


def _cdk(project: Path) -> Check:
    """Check the CDK by its files, since starting it takes a second.

    Version 3.0.0 is newer by number only: it reads older assemblies than aws-cdk-lib writes.
    """
    pinned = _version(project / "infra" / "package.json", "devDependencies", "aws-cdk")
    installed = _version(project / "infra" / "node_modules" / "aws-cdk" / "package.json", "version")
    if installed is None:
        return Check("cdk", "fail", f"aws-cdk {pinned} is not installed in infra/", f"Run `{_INSTALL}`.")
    if installed != pinned:
        detail = f"infra/ has aws-cdk {installed}, but needs {pinned}"
        return Check("cdk", "fail", detail, f"Run `{_INSTALL}`.")
    return Check("cdk", "ok", f"aws-cdk {installed}")


def _version(file: Path, *keys: str) -> str | None:
    try:
        found = json.loads(file.read_text())
        for key in keys:
            found = found[key]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(found)


def check_bytecode(assembly: Assembly) -> Check:
    """Check that the functions' code is compiled: Lambda would compile it at each cold start."""
    folders = assembly.code_folders()
    bare = {
        handler: version for handler, (folder, version) in folders.items() if not _compiled(folder, version)
    }
    if not folders:
        detail = "the assembly holds no code, as if made for tests"
        return Check("bytecode", "fail", detail, "Run `make synth` again.")
    if bare:
        versions = " and ".join(sorted(set(bare.values())))
        detail = (
            f"no bytecode for Python {versions} in {len(bare)} of {len(folders)} functions: slow cold starts"
        )
        return Check("bytecode", "warn", detail, f"Run `uv python install {versions}`, then `make synth`.")
    return Check("bytecode", "ok", f"in all {len(folders)} functions")


def _compiled(folder: Path, version: str) -> bool:
    tag = f"cpython-{version.replace('.', '')}"
    return next((folder / "functions").rglob(f"*.{tag}.pyc"), None) is not None


_VENDORS = {"api.openai.com": "OpenAI", "api.anthropic.com": "Anthropic"}
"""Default hosts; the keys in the deployed secret are unknown here."""

Found = Literal["ipv6", "ipv4", "unknown"]


def check_ipv6(assembly: Assembly, services: Mapping[str, str]) -> Iterator[Check]:
    """Check each host that functions call over the internet.

    Args:
        assembly: Assembly; without results unless its functions have IPv6 egress only.
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
        yield _reachable(host, name, found[host], needed=needed)


def addresses(host: str) -> Found:
    """Look up a host; "unknown" if it has no address, such as without a network."""
    if has_address(host, socket.AF_INET6):
        return "ipv6"
    return "ipv4" if has_address(host, socket.AF_INET) else "unknown"


def has_address(host: str, family: socket.AddressFamily) -> bool:
    """Return whether a host has an address of a family."""
    try:
        socket.getaddrinfo(host, 443, family, socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # UnicodeError: a label that is too long
        return False
    return True


def _configured_hosts(assembly: Assembly) -> Iterator[tuple[str, str]]:
    for function in assembly.of_type("AWS::Lambda::Function"):
        variables = function.get("Environment", {}).get("Variables", {})
        for kind in ("EMBEDDING", "LLM"):
            provider = variables.get(setting := f"VECTORFORGE_DEFAULT_{kind}_PROVIDER", "")
            for own in hosts_of(provider, variables):
                if not own.endswith(AWS_DUAL_STACK):  # with IPv6 in every region
                    yield own, setting
        for name, value in variables.items():
            if name.endswith(("_BASE_URL", "_ENDPOINT")) and isinstance(value, str):
                try:
                    host = urlsplit(value).hostname
                except ValueError:
                    host = None
                if host:
                    yield host, name


def _reachable(host: str, name: str, found: Found, *, needed: bool) -> Check:
    if found == "ipv6":
        return Check("ipv6", "ok", f"{host} ({name}) has an IPv6 address")
    if found == "unknown":
        detail = f"{host} ({name}) could not be looked up from here"
        return Check("ipv6", "warn", detail, f"Look with `getent ahostsv6 {host}` where there is a network.")
    detail = f"{host} ({name}) has no IPv6 address, and this stage has IPv6 egress only"
    remedy = 'Set egress to "nat" in infra/settings.py, or use a vendor with one.'
    return Check("ipv6", "fail" if needed else "warn", detail, remedy)
