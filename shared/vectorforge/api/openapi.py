"""The OpenAPI document; ``python -m vectorforge.api.openapi > docs/openapi.json`` writes it to the file.

``openapi_additions.json`` has what FastAPI does not know: order and descriptions of the tags, and examples of
parameters and bodies. Tests send every example to a server.
"""

import json
import sys
from functools import cache
from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from vectorforge import __version__
from vectorforge.api.error_schemas import AwsError, OpenAIError, Problem
from vectorforge.api.native.document_schemas import DocumentsRequest
from vectorforge.api.querying import QueryRoute
from vectorforge.api.request_state import error_shape_of, required_scope
from vectorforge.api.routers import Routers
from vectorforge.api.streaming.sse import EVENT_DATA

_DESCRIPTION = (
    "Query your own documents: answers with citations, as JSON or as server-sent events. "
    "Every error is an RFC 9457 problem document."
)
_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    "description": "Identifies the request: a repetition gets the answer of the first request at no cost.",
}
_REPLAYED = {
    "schema": {"const": "true"},
    "description": "The answer was generated for an earlier request with the same `Idempotency-Key`.",
}
_JSON = "application/json"


def create_routes() -> FastAPI:
    """Return an app with all routes and no application behind them."""
    app = FastAPI(
        title="VectorForge", version=__version__, description=_DESCRIPTION, docs_url=None, redoc_url=None
    )
    Routers(app).include_all()
    return app


@cache
def document() -> dict[str, Any]:
    """Return the document of all routes: FastAPI's, with problem documents and event data."""
    app = create_routes()
    schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    query_paths = {
        context.path
        for context in iter_route_contexts(app.routes)
        if isinstance(context.original_route, QueryRoute)
    }
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            if scope := required_scope(method.upper(), path):
                operation.setdefault("security", [{"bearer": []}, {"api_key": []}])  # not a parameter of each
                operation["x-required-scope"] = scope.value
            if error_shape_of(path) != "problem":
                operation["responses"].pop("422", None)  # these paths return 400 instead
            if path in query_paths and method == "post":
                operation.setdefault("parameters", []).append(_IDEMPOTENCY_KEY)
                operation["responses"]["200"]["headers"] = {"Idempotent-Replayed": _REPLAYED}
    schema["components"]["schemas"].update(_more_schemas())
    _add_examples(schema)
    return schema


def _add_examples(schema: dict[str, Any]) -> None:
    """Add tags and examples; each example must belong to an operation with a JSON body."""
    additions = json.loads(files("vectorforge.api").joinpath("openapi_additions.json").read_text("utf-8"))
    schema["tags"] = additions["tags"]
    for route, examples in additions["bodies"].items():
        method, path = route.split(" ", 1)
        schema["paths"][path][method.lower()]["requestBody"]["content"][_JSON]["examples"] = examples
    for operations in schema["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path" and parameter["name"] in additions["parameters"]:
                    parameter["example"] = additions["parameters"][parameter["name"]]


def _more_schemas() -> dict[str, Any]:
    """Return schemas that routes describe by name only: events, errors, and a body with two media types."""
    models: list[type[BaseModel]] = [*EVENT_DATA.values(), Problem, OpenAIError, AwsError]
    written: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "serialization") for model in models]
    _, definitions = models_json_schema(
        [*written, (DocumentsRequest, "validation")], ref_template="#/components/schemas/{model}"
    )
    schemas: dict[str, Any] = definitions["$defs"]
    return schemas


if __name__ == "__main__":
    json.dump(document(), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
