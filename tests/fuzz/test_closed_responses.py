"""Responses may have documented fields only; schemas of requests are unchanged."""

from typing import Any

from tests.fuzz.closed_responses import closed


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _named(name: str) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}}


def test_schema_closing_affects_response_schemas_only() -> None:
    schemas = {
        "Sent": _object(shared={"$ref": "#/components/schemas/Shared"}),
        "Shared": _object(),
        "Answer": _object(inner={"anyOf": [{"$ref": "#/components/schemas/Inner"}, _object(a={})]}),
        "Inner": _object(shared={"$ref": "#/components/schemas/Shared"}),
        "Map": {**_object(), "additionalProperties": {"type": "string"}},
    }
    operation = {"requestBody": _named("Sent"), "responses": {"200": _named("Answer"), "404": _named("Map")}}
    document = {"paths": {"/": {"post": operation}}, "components": {"schemas": schemas}}
    found = closed(document)["components"]["schemas"]
    assert {name for name, one in found.items() if one.get("additionalProperties") is False} == {
        "Answer",
        "Inner",
    }
    assert found["Answer"]["properties"]["inner"]["anyOf"][1]["additionalProperties"] is False
    assert found["Map"]["additionalProperties"] == {"type": "string"}
    assert "additionalProperties" not in schemas["Answer"]
