"""Folders of tiny ONNX models: an embedding model and cross-encoders over a few hundred words."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
_WORDS = re.findall(
    r"\S+",
    "the invoice is due within thirty days . grüße aus köln cats sleep most of day x kitten sleeps during "
    "line one two must be paid when it same other a b c late health query passage : dog barks good bad word",
)
VOCABULARY = {word: number for number, word in enumerate([*_SPECIAL, *dict.fromkeys(_WORDS)])}
DIMENSION = len(VOCABULARY)
TABLE = np.eye(DIMENSION, dtype=np.float32)
"""Vector of each word. The graph adds the mean of a text's vectors to each of them."""


def write_folder(folder: Path, graph: Any, **described: Any) -> Path:
    """Write a graph, a tokenizer and a ``vectorforge.json`` that pins them; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(graph.SerializeToString())
    _tokenizer().save(str(folder / "tokenizer.json"))
    pinned = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in ("model.onnx", "tokenizer.json")
    }
    (folder / "vectorforge.json").write_text(json.dumps({"name": "tiny", "sha256": pinned, **described}))
    return folder


def embedding_folder(folder: Path, **described: Any) -> Path:
    """Write the folder of a model for two languages, with prefixes."""
    defaults = {
        "dimension": DIMENSION,
        "query_prefix": "query: ",
        "document_prefix": "passage: ",
        "languages": ["en", "de"],
    }
    return write_folder(folder, embedding_graph(), **{**defaults, **described})


def reranker_folder(folder: Path, *, hangs: bool = False, labels: int = 1, **described: Any) -> Path:
    """Write the folder of a cross-encoder whose logit is the number of words that a pair shares."""
    return write_folder(folder, _reranker_graph(hangs=hangs, labels=labels), **described)


def embedding_graph() -> Any:
    """Return a graph with the output [texts, tokens, dimension]."""
    table = numpy_helper.from_array(TABLE, "table")
    axis = numpy_helper.from_array(np.array([1]), "axis")
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"], axis=0),
        helper.make_node("ReduceMean", ["words", "axis"], ["mean"], keepdims=1),
        helper.make_node("Add", ["words", "mean"], ["last_hidden_state"]),
    ]
    output = ("last_hidden_state", ["texts", "tokens", DIMENSION])
    return _model(nodes, ["input_ids", "attention_mask"], output, [table, axis])


def _reranker_graph(*, hangs: bool, labels: int) -> Any:
    words = np.eye(len(VOCABULARY), dtype=np.float32)
    words[: len(_SPECIAL)] = 0
    constants: dict[str, Any] = {
        "words": words,
        "tokens": np.array([1]),
        "last": np.array([-1]),
        "ones": np.ones((1, labels), dtype=np.float32),
        "one": np.float32(1),
        "zero": np.float32(0),
        "endless": np.int64(2**62),
        "true": np.bool_(True),
    }
    nodes = [
        helper.make_node("Gather", ["words", "input_ids"], ["found"], axis=0),
        *_sum_of_words("token_type_ids", "of_text"),
        *_sum_of_words("attention_mask", "of_both"),
        helper.make_node("Sub", ["of_both", "of_text"], ["of_query"]),
        helper.make_node("Mul", ["of_query", "of_text"], ["shared"]),
        helper.make_node("ReduceSum", ["shared", "tokens"], ["count"], keepdims=1),
        helper.make_node("MatMul", ["count", "ones"], ["counts"]),
    ]
    if hangs:
        nodes.append(helper.make_node("Loop", ["endless", "true", "zero"], ["added"], body=_endless_body()))
    nodes.append(helper.make_node("Add", ["counts", "added" if hangs else "zero"], ["logits"]))
    inputs = ["input_ids", "attention_mask", "token_type_ids"]
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    return _model(nodes, inputs, ("logits", ["texts", labels]), initializers)


def _sum_of_words(weights: str, output: str) -> list[Any]:
    """Return the nodes that sum the words of the tokens whose weight is 1: [texts, words]."""
    return [
        helper.make_node("Cast", [weights], [f"{output}_f"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", [f"{output}_f", "last"], [f"{output}_u"]),
        helper.make_node("Mul", ["found", f"{output}_u"], [f"{output}_m"]),
        helper.make_node("ReduceSum", [f"{output}_m", "tokens"], [output], keepdims=0),
    ]


def _endless_body() -> Any:
    def scalar(name: str, kind: int) -> Any:
        return helper.make_tensor_value_info(name, kind, [])

    nodes = [
        helper.make_node("Identity", ["go"], ["goes"]),
        helper.make_node("Sub", ["one", "value"], ["next"]),
    ]
    kinds = {"round": TensorProto.INT64, "go": TensorProto.BOOL, "value": TensorProto.FLOAT}
    inputs = [scalar(name, kind) for name, kind in kinds.items()]
    return helper.make_graph(
        nodes, "body", inputs, [scalar("goes", TensorProto.BOOL), scalar("next", TensorProto.FLOAT)]
    )


def _model(nodes: list[Any], inputs: list[str], output: tuple[str, list[Any]], constants: list[Any]) -> Any:
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["texts", "tokens"]) for name in inputs],
        [helper.make_tensor_value_info(output[0], TensorProto.FLOAT, output[1])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    model.ir_version = 9
    onnx.checker.check_model(model)
    return model


def _tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", VOCABULARY["[CLS]"]), ("[SEP]", VOCABULARY["[SEP]"])],
    )
    tokenizer.enable_padding(length=64)  # as in published files; batches of one must not be padded
    return tokenizer
