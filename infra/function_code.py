"""Lambda code assets: each function's bundle, made by ``infra.bundling`` while CDK synthesizes."""

import hashlib
import shutil
import sys
from pathlib import Path
from typing import Any

import jsii
from aws_cdk import AssetHashType, BundlingOptions, DockerImage, ILocalBundling
from aws_cdk import aws_lambda as lambda_

from infra.bundling import ROOMS_LEFT_OUT, ROOT, STANDS_ALONE, find_uv, make_bundle
from infra.interpreters import find_interpreter
from infra.settings import CodeSettings

_MAKERS = ("bundling", "database_certificates", "interpreters", "token_tables")
"""Modules that make a bundle."""
_LEFT_OUT = {ROOT / "shared" / "vectorforge" / room for room in ROOMS_LEFT_OUT}


def function_code(function: str, settings: CodeSettings, sdks: tuple[str, ...]) -> lambda_.Code:
    """The bundle of a function as an asset; made again only when code, lock file or target have changed.

    Args:
        function: A folder of ``functions/``.
        settings: Python and machine that it will run on.
        sdks: Vendors' SDKs that the bundle holds besides.
    """
    return lambda_.Code.from_asset(
        str(ROOT / "functions" / function),
        asset_hash=_fingerprint(function, settings, sdks),
        asset_hash_type=AssetHashType.CUSTOM,
        bundling=BundlingOptions(
            # Never pulled: local bundling either succeeds or raises.
            image=DockerImage.from_registry("public.ecr.aws/sam/build-python3.14"),
            local=_LocalBundling(function, settings, sdks),
        ),
    )


def _fingerprint(function: str, settings: CodeSettings, sdks: tuple[str, ...]) -> str:
    """Of everything that the bundle is made from, and of whether it can be compiled here."""
    compiled = find_interpreter(settings.python_version, find_uv()) is not None
    target = " ".join([function, settings.python_version, settings.platform, str(compiled), *sdks])
    digest = hashlib.sha256(f"{target}\n".encode())
    places = [Path("functions", function)]
    if function not in STANDS_ALONE:
        places += [Path("shared", "vectorforge"), Path("infra", "certificates")]
    files = [file for place in places for file in (ROOT / place).rglob("*") if _is_source(file)]
    # Of infra/ only what makes the bundle, not the stacks: a new alarm changes no function.
    makers = [ROOT / "infra" / f"{name}.py" for name in _MAKERS]
    for file in sorted([*files, *makers, ROOT / "uv.lock", ROOT / "pyproject.toml"]):
        digest.update(f"{file.relative_to(ROOT)} {file.stat().st_mode & 0o100}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _is_source(file: Path) -> bool:
    """Of the library without the rooms that no bundle has: a new test double changes no function."""
    return file.is_file() and "__pycache__" not in file.parts and not _LEFT_OUT & set(file.parents)


@jsii.implements(ILocalBundling)
class _LocalBundling:
    """Tells CDK to bundle here instead of in Docker."""

    def __init__(self, function: str, settings: CodeSettings, sdks: tuple[str, ...]) -> None:
        self._function = function
        self._settings = settings
        self._sdks = sdks

    def try_bundle(self, output_dir: str, *args: Any, **kwargs: Any) -> bool:
        """Fill the folder. A failure is raised: Docker would not do better."""
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
