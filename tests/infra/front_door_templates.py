"""The methods of a REST API in a template."""

from collections.abc import Mapping
from typing import Any

from tests.infra.stack_template import StackTemplate, text

ALIAS = "QueryFunctionAlias"


AUTHORIZER = "RestApiKeyAuthorizer"


LAMBDA = "arn:AWS::Partition:apigateway:AWS::Region:lambda:path"


STREAMED = f"{LAMBDA}/2021-11-15/functions/{ALIAS}/response-streaming-invocations"


def methods(template: StackTemplate) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Return every method of the REST API by path and HTTP method."""
    resources = template.of_kind("AWS::ApiGateway::Resource")
    paths = {"RestApi.RootResourceId": "/"}
    for name, resource in resources.items():
        assert text(resource["ParentId"]) == "RestApi.RootResourceId"
        paths[name] = f"/{resource['PathPart']}"
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for method in template.of_kind("AWS::ApiGateway::Method").values():
        found.setdefault(paths[text(method["ResourceId"])], {})[method["HttpMethod"]] = method
    return found


def chosen(methods: dict[str, dict[str, Mapping[str, Any]]], verb: str, path: str) -> Mapping[str, Any]:
    """Return the method that API Gateway selects: the longest resource, then the verb, then ANY."""
    verbs = methods[path] if path in methods else methods["/{proxy+}"]
    return verbs[verb] if verb in verbs else verbs["ANY"]


def preflights(template: StackTemplate) -> dict[str, Mapping[str, Any]]:
    """Return the methods that answer preflights, by path."""
    return {path: verbs["OPTIONS"] for path, verbs in methods(template).items() if "OPTIONS" in verbs}
