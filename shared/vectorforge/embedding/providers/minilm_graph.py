"""The graph of all-MiniLM-L6-v2, built from its published weights and quantised to int8; no torch.

A BERT encoder (https://arxiv.org/abs/1810.04805) of six layers, mean pooling and L2 normalisation, as
sentence-transformers runs it. One text goes through at a time: dynamic quantisation takes its scales
from everything in the batch, so in a batch a text's vector would depend on its neighbours.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BUILDER_VERSION = 1
"""Grows with every change of the graph or its quantisation; part of the built file's name."""

DIMENSION = 384
_LAYERS = 6
_HEADS = 12
_HEAD_SIZE = DIMENSION // _HEADS
_OPSET = 20  # the first with Gelu; onnxruntime >= 1.17
_IR_VERSION = 9
_EPSILON = 1e-12  # layer_norm_eps of the model's config.json


class _Graph:
    """Collects nodes and constants; every method returns the name of its output."""

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
        """Word + position + token type (always 0), normalised: [1, tokens, 384]."""
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
    """The fp32 model: ``input_ids`` int64 [1, tokens] -> ``embedding`` float32 [1, 384], L2 norm 1.

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
    pooled = graph.op("ReduceMean", x, graph.integers(1), keepdims=0)
    graph.op("LpNormalization", pooled, output="embedding", axis=-1, p=2)
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "all-MiniLM-L6-v2",
            [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "tokens"])],
            [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, [1, DIMENSION])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
    )
    model.ir_version = _IR_VERSION
    # nothing to prepare here; without this mark the quantiser warns on the root logger
    helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})
    return model


def build_quantised(weights_file: Path, target: Path) -> None:
    """Write the int8 model (about 23 MB) built from a ``model.safetensors``. Takes 3 s and 600 MB.

    Weights of the matrix products and of the word table become int8, one scale a column; activations are
    quantised as they flow. Cosine to the fp32 model's vectors: .99.

    ``python -m`` this module with the two paths does the same in a process of its own: in a server's, the
    quantiser would hold the interpreter for a third of a second at a time and set up the root logger.
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
