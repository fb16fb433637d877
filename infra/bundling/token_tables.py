"""tiktoken's tables for bundles and laptops, so that no request waits for a download.

``tiktoken`` downloads each table on first use (https://github.com/openai/tiktoken/issues/232). The same files
lie in a wheel on PyPI, so the package index is the only host that a build needs; each is checked against the
sha256 that tiktoken itself demands.

python -m infra.bundling.token_tables    fills the cache folder that ``vectorforge.tokens`` reads
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# From tiktoken_ext/openai_public.py: sha256 of the table, by encoding.
TABLES = {
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}
_URL = "https://openaipublic.blob.core.windows.net/encodings/{encoding}.tiktoken"

_WHEEL = (
    "llama-index-core==0.14.25 --hash=sha256:caa7d9c5ac9b13dc33400cf8d5e92e689b6d1e4497eb9bfa50d6f52ca2eb22a1"
)
_FOLDER_IN_WHEEL = Path("llama_index", "core", "_static", "tiktoken_cache")


class TokenTableError(Exception):
    """A table is unavailable, or differs from the published one."""


def cached_name(encoding: str) -> str:
    """Return the file name of a table in tiktoken's cache folder: the SHA-1 of its URL."""
    return hashlib.sha1(_URL.format(encoding=encoding).encode(), usedforsecurity=False).hexdigest()


def default_cache_dir() -> Path:
    """Return the cache folder of the tables (https://specifications.freedesktop.org/basedir-spec/)."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "vectorforge" / "tiktoken"


def copy_token_tables(output: Path, *, uv: str, python: str, cache_dir: Path | None = None) -> None:
    """Copy every table into ``output``, after filling the cache folder from the wheel.

    Args:
        output: Made here; holds one file for each of ``TABLES``.
        uv: The uv program.
        python: An interpreter for uv.
        cache_dir: Default: ``default_cache_dir()``.

    Raises:
        TokenTableError: The wheel is unavailable, or a file of it differs from the published one.
    """
    cache = cache_dir or default_cache_dir()
    fill_cache(cache, uv=uv, python=python)
    output.mkdir(parents=True)
    for encoding in TABLES:
        shutil.copyfile(cache / cached_name(encoding), output / cached_name(encoding))


def fill_cache(cache: Path, *, uv: str, python: str) -> None:
    """Add the missing tables to a folder from the wheel; no network access if none is missing.

    Raises:
        TokenTableError: As ``copy_token_tables``.
    """
    if not all(_is_table(cache / cached_name(encoding), digest) for encoding, digest in TABLES.items()):
        _fill(cache, uv, python)


def _fill(cache: Path, uv: str, python: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [uv, "pip", "install", "--quiet", "--python", python, "--target", folder]
        command += ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--requirement", "-"]
        finished = subprocess.run(command, input=_WHEEL, capture_output=True, text=True)  # noqa: S603 - our words
        if finished.returncode:
            raise TokenTableError(f"The wheel with tiktoken's tables is unavailable:\n{finished.stderr}")
        cache.mkdir(parents=True, exist_ok=True)
        for encoding, digest in TABLES.items():
            found = Path(folder) / _FOLDER_IN_WHEEL / cached_name(encoding)
            if not _is_table(found, digest):
                raise TokenTableError(f"The wheel's table of {encoding} differs from the published one.")
            _keep(found, cache / found.name)


def _keep(found: Path, place: Path) -> None:
    """Copy under another name and rename, so that concurrent builds never see a partial file."""
    with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
        file.write(found.read_bytes())
    Path(file.name).replace(place)


def _is_table(file: Path, digest: str) -> bool:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest() == digest
    except OSError:
        return False


def main() -> int:
    """Fill ``default_cache_dir()``; return 1 if the tables are unavailable: token counts stay estimated."""
    try:
        fill_cache(default_cache_dir(), uv=os.environ.get("UV", "uv"), python=sys.executable)
    except (TokenTableError, OSError) as exc:
        sys.stderr.write(f"{exc}\nToken counts are estimated until `make run` can fetch the tables.\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
