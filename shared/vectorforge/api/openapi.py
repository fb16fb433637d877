"""The OpenAPI document; ``python -m vectorforge.api.openapi > docs/openapi.json`` writes it anew."""

import json
import sys
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from vectorforge.api.problems import PROBLEM_MEDIA_TYPE
from vectorforge.api.schemas.events import EVENT_DATA

_FIRST_ERROR_STATUS = 400


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
        for operations in document["paths"].values():
            for operation in operations.values():
                _name_problem_media_type(operation["responses"])
        document["components"]["schemas"].update(_event_schemas())
        app.openapi_schema = document
    return app.openapi_schema


def _name_problem_media_type(responses: dict[str, Any]) -> None:
    for status, response in responses.items():
        if int(status) >= _FIRST_ERROR_STATUS and "application/json" in response.get("content", {}):
            response["content"] = {PROBLEM_MEDIA_TYPE: response["content"].pop("application/json")}


def _event_schemas() -> dict[str, Any]:
    _, definitions = models_json_schema(
        [(model, "serialization") for model in EVENT_DATA.values()],
        ref_template="#/components/schemas/{model}",
    )
    schemas: dict[str, Any] = definitions["$defs"]
    return schemas


if __name__ == "__main__":
    from vectorforge.api.app import create_routes

    json.dump(create_routes().openapi(), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
