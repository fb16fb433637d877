"""Model names and errors in OpenAI's format."""

import pytest

from vectorforge.api.error_schemas import openai_error, openai_status
from vectorforge.api.openai.models import RequestedModel, model_name
from vectorforge.api.problems import problem_of
from vectorforge.api.request_state import error_shape_of
from vectorforge.errors import (
    AnsweringModelNotFoundError,
    AuthenticationError,
    InvalidInputError,
    LLMRateLimitError,
    VectorForgeError,
)


@pytest.mark.parametrize(
    ("name", "preset", "collection"),
    [
        ("vectorforge", "vectorforge", None),
        ("vectorforge/handbook", "vectorforge", "handbook"),
        ("docrag/a/b", "docrag", "a/b"),
    ],
)
def test_model_name_selects_preset_and_collection(name: str, preset: str, collection: str | None) -> None:
    requested = RequestedModel.parse(name)
    assert (requested.preset.name, requested.collection) == (preset, collection)
    assert model_name(preset, collection) == name


@pytest.mark.parametrize(
    "name", ["", "gpt-6", "handbook", "vectorforge/", "profile/x", f"vectorforge/{'x' * 201}"]
)
def test_unknown_model_name_raises_not_found(name: str) -> None:
    with pytest.raises(AnsweringModelNotFoundError):
        RequestedModel.parse(name)


@pytest.mark.parametrize(
    ("error", "status", "type_", "param"),
    [
        (InvalidInputError("too many", field="top_k"), 400, "invalid_request_error", "top_k"),
        (AnsweringModelNotFoundError(), 404, "invalid_request_error", "model"),
        (AuthenticationError(), 401, "authentication_error", None),
        (LLMRateLimitError("slow"), 429, "rate_limit_error", None),
        (VectorForgeError("inside"), 500, "server_error", None),
    ],
)
def test_errors_have_openai_shape(error: Exception, status: int, type_: str, param: str | None) -> None:
    problem = problem_of(error, request_id="r")
    body = openai_error(problem)["error"]
    assert (openai_status(problem.status), body["type"], body["param"]) == (status, type_, param)
    assert body["message"] == problem.detail
    assert body["code"] == problem.code


def test_openai_paths_are_recognized() -> None:
    assert error_shape_of("/v1/vector_stores/x/search") == "openai"
    assert error_shape_of("/v1/files") == "openai"
    assert error_shape_of("/v1") != "openai"
    assert error_shape_of("/files") == "openai"  # of a client whose base URL lacks /v1
    assert error_shape_of("/documents") != "openai"
    assert error_shape_of("/v1/rag/query") != "openai"
