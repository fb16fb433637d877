"""Lambda code assets: each function's bundle, made by ``infra.bundling`` while CDK synthesizes."""

import hashlib
import shutil
import sys
from pathlib import Path
from typing import Any

import jsii
from aws_cdk import AssetHashType, BundlingOptions, DockerImage, ILocalBundling
from aws_cdk import aws_lambda as lambda_

from infra.bundling import ROOMS_LEFT_OUT, ROOT, make_bundle
from infra.settings import CodeSettings

_LEFT_OUT = {ROOT / "shared" / "vectorforge" / room for room in ROOMS_LEFT_OUT}


def function_code(function: str, settings: CodeSettings) -> lambda_.Code:
    """The bundle of a function as an asset; made again only when code, lock file or target have changed.

    Args:
        function: A folder of ``functions/``.
        settings: Python and machine that it will run on.
    """
    return lambda_.Code.from_asset(
        str(ROOT / "functions" / function),
        asset_hash=_fingerprint(function, settings),
        asset_hash_type=AssetHashType.CUSTOM,
        bundling=BundlingOptions(
            # Never pulled: local bundling either succeeds or raises.
            image=DockerImage.from_registry("public.ecr.aws/sam/build-python3.14"),
            local=_LocalBundling(function, settings),
        ),
    )


def _fingerprint(function: str, settings: CodeSettings) -> str:
    """Of everything that the bundle is made from."""
    digest = hashlib.sha256(f"{function} {settings.python_version} {settings.platform}".encode())
    folders = (ROOT / "shared" / "vectorforge", ROOT / "functions" / function, ROOT / "infra")
    files = [file for folder in folders for file in folder.rglob("*") if _is_source(file)]
    for file in sorted([*files, ROOT / "uv.lock", ROOT / "pyproject.toml"]):
        digest.update(f"{file.relative_to(ROOT)} {file.stat().st_mode & 0o100}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _is_source(file: Path) -> bool:
    """Of infra/ only what makes the bundle, not the stacks: a new alarm changes no function."""
    if not file.is_file() or "__pycache__" in file.parts or _LEFT_OUT & set(file.parents):
        return False
    if ROOT / "infra" in file.parents:
        return file.name in ("bundling.py", "token_tables.py", "database_certificates.py")
    return True


@jsii.implements(ILocalBundling)
class _LocalBundling:
    """Tells CDK to bundle here instead of in Docker."""

    def __init__(self, function: str, settings: CodeSettings) -> None:
        self._function = function
        self._settings = settings

    def try_bundle(self, output_dir: str, *args: Any, **kwargs: Any) -> bool:
        """Fill the folder. A failure is raised: Docker would not do better."""
        output = Path(output_dir)
        shutil.rmtree(output)  # CDK made it, with the umask of this machine
        bundle = make_bundle(
            self._function,
            output,
            python_version=self._settings.python_version,
            platform=self._settings.platform,
        )
        sys.stderr.write(f"{bundle}\n")
        return True
