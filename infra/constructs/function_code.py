"""Lambda code assets: each function's bundle, made by ``infra.bundling.bundle`` while CDK synthesizes."""

import hashlib
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jsii
from aws_cdk import AssetHashType, BundlingOptions, DockerImage, ILocalBundling
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from infra.bundling.bundle import OPERATOR, ROOMS_LEFT_OUT, ROOT, STANDS_ALONE, find_uv, make_bundle
from infra.bundling.interpreters import find_interpreter
from infra.setting_types import CodeSettings

_LEFT_OUT = {ROOT / "shared" / "vectorforge" / room for room in ROOMS_LEFT_OUT}


def function_code(function: str, settings: CodeSettings, sdks: tuple[str, ...]) -> lambda_.Code:
    """Return the bundle of a function as an asset; rebuilt only if code, lock file or target have changed."""
    return lambda_.Code.from_asset(str(ROOT / "functions" / function), **_bundled(function, settings, sdks))


def operator_tools(scope: Construct, settings: CodeSettings) -> s3_assets.Asset:
    """Return the bundle of the operator's host as an asset of the stack."""
    folder = str(ROOT / "infra" / "bundling" / "host")
    return s3_assets.Asset(scope, "Tools", path=folder, **_bundled(OPERATOR, settings, ()))


def _bundled(function: str, settings: CodeSettings, sdks: tuple[str, ...]) -> dict[str, Any]:
    return {
        "asset_hash": _fingerprint(function, settings, sdks),
        "asset_hash_type": AssetHashType.CUSTOM,
        "bundling": BundlingOptions(
            # Never pulled: local bundling either succeeds or raises.
            image=DockerImage.from_registry("public.ecr.aws/sam/build-python3.14"),
            local=_LocalBundling(function, settings, sdks),
        ),
    }


def _fingerprint(function: str, settings: CodeSettings, sdks: tuple[str, ...]) -> str:
    """Return a digest of all inputs of the bundle, and of whether it can be compiled here."""
    compiled = find_interpreter(settings.python_version, find_uv()) is not None
    target = " ".join([function, settings.python_version, settings.platform, str(compiled), *sdks])
    digest = hashlib.sha256(f"{target}\n".encode())
    # Of infra/ only what makes bundles, not the stacks: a new alarm changes no function.
    places = [Path("functions", function), Path("infra", "bundling")]  # of the operator's tools the latter
    if function not in STANDS_ALONE:
        places.append(Path("shared", "vectorforge"))
    unused = set() if function == OPERATOR else _LEFT_OUT
    files = [file for place in places for file in (ROOT / place).rglob("*") if _is_source(file, unused)]
    for file in sorted([*files, ROOT / "uv.lock", ROOT / "pyproject.toml"]):
        digest.update(f"{file.relative_to(ROOT)} {file.stat().st_mode & 0o100}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _is_source(file: Path, unused: set[Path]) -> bool:
    """Return whether a file belongs to a bundle; packages that it leaves out do not change it."""
    return file.is_file() and "__pycache__" not in file.parts and not unused & set(file.parents)


@jsii.implements(ILocalBundling)
class _LocalBundling:
    """Bundling by this process instead of Docker."""

    def __init__(self, function: str, settings: CodeSettings, sdks: tuple[str, ...]) -> None:
        self._function = function
        self._settings = settings
        self._sdks = sdks

    def try_bundle(self, output_dir: str, *args: Any, **kwargs: Any) -> bool:
        """Fill the folder. A failure is raised, since Docker would fail as well."""
        output = Path(output_dir)
        shutil.rmtree(output)  # CDK made it, with the umask of this machine
        bundle = make_bundle(
            self._function,
            output,
            python_version=self._settings.python_version,
            platform=self._settings.platform,
            sdks=self._sdks,
        )
        sys.stderr.write(f"{bundle}\n")
        return True


VENDOR_SDKS: Final = ("anthropic", "openai", "vertex")
"""Groups ``sdk-<name>`` of pyproject.toml; "vertex" is anthropic with Google's library for credentials."""

_ASKING: Final = {"query": frozenset(VENDOR_SDKS), "ingest": frozenset({"openai"})}
"""SDKs that each function can use; the ingest function only embeds."""


def needed_sdks(function: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the SDKs that a function's bundle must hold; none unless a setting needs them."""
    needed = {
        "openai": _is_sdk(environment, "OPENAI") or "VECTORFORGE_AZURE_OPENAI_ENDPOINT" in environment,
        "anthropic": _is_sdk(environment, "ANTHROPIC"),
        "vertex": "VECTORFORGE_VERTEX_PROJECT" in environment,
    }
    asking = _ASKING.get(function, frozenset())
    return tuple(name for name in VENDOR_SDKS if needed[name] and name in asking)


def _is_sdk(environment: Mapping[str, str], vendor: str) -> bool:
    return environment.get(f"VECTORFORGE_{vendor}_CLIENT") == "sdk"
