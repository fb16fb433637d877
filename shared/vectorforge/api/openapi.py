"""The OpenAPI document; ``python -m vectorforge.api.openapi > docs/openapi.json`` writes it anew."""

import json
import sys
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from vectorforge.api.identity.route_scopes import required_scope
from vectorforge.api.native.document_schemas import DocumentsRequest
from vectorforge.api.native.events import EVENT_DATA
from vectorforge.api.openai.errors import is_openai_path
from vectorforge.api.problems import PROBLEM_MEDIA_TYPE
from vectorforge.api.query_route import QueryRoute

_FIRST_ERROR_STATUS = 400
_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    "description": "Names the request: sent again, it gets the answer of the first time, and costs nothing.",
}
_REPLAYED = {
    "schema": {"const": "true"},
    "description": "The answer was made for an earlier request with the same `Idempotency-Key`.",
}
_PROBLEM = "#/components/schemas/Problem"


def describe(app: FastAPI) -> dict[str, Any]:
    """The document of the app's routes: FastAPI's, with problem documents and event data. Made once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            tags=app.openapi_tags,
        )
        query_paths = {
            context.path
            for context in iter_route_contexts(app.routes)
            if isinstance(context.original_route, QueryRoute)
        }
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if scope := required_scope(method.upper(), path):
                    operation["x-required-scope"] = scope.value
                if is_openai_path(path):
                    operation["responses"].pop("422", None)  # it is answered with 400
                _name_problem_media_type(operation["responses"])
                if path in query_paths and method == "post":
                    operation.setdefault("parameters", []).append(_IDEMPOTENCY_KEY)
                    operation["responses"]["200"]["headers"] = {"Idempotent-Replayed": _REPLAYED}
        document["components"]["schemas"].update(_more_schemas())
        app.openapi_schema = document
    return app.openapi_schema


def _name_problem_media_type(responses: dict[str, Any]) -> None:
    for status, response in responses.items():
        content = response.get("content", {}).get("application/json")
        if int(status) >= _FIRST_ERROR_STATUS and content and content["schema"].get("$ref") == _PROBLEM:
            response["content"] = {PROBLEM_MEDIA_TYPE: content}


def _more_schemas() -> dict[str, Any]:
    """Of what routes describe by name only: events, and a body that comes in two media types."""
    events: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        (model, "serialization") for model in EVENT_DATA.values()
    ]
    _, definitions = models_json_schema(
        [*events, (DocumentsRequest, "validation")], ref_template="#/components/schemas/{model}"
    )
    schemas: dict[str, Any] = definitions["$defs"]
    return schemas


if __name__ == "__main__":
    from vectorforge.api.app import create_routes

    json.dump(create_routes().openapi(), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
