"""Additional variables for every function of a template, and new versions if they differ."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_FUNCTION, _VERSION = "AWS::Lambda::Function", "AWS::Lambda::Version"
_HASH_CHARS = 8


def add_environment(template: dict[str, Any], environment: Mapping[str, str]) -> None:
    """Add variables to every function, in place.

    A version never changes once it is published, so CDK puts a hash of the function's settings into the
    version's logical id, and CloudFormation makes another one when they change
    (https://docs.aws.amazon.com/cdk/api/v2/docs/aws-cdk-lib.aws_lambda-readme.html#currentversion-updated-hashing-logic).
    CDK does not know these variables: their hash is put behind its own.

    Without variables nothing is changed.
    """
    if not environment:
        return
    resources = template["Resources"]
    for resource in resources.values():
        if resource["Type"] == _FUNCTION:
            variables = resource["Properties"].setdefault("Environment", {}).setdefault("Variables", {})
            variables.update(environment)
    suffix = hashlib.sha256(json.dumps(sorted(environment.items())).encode()).hexdigest()[:_HASH_CHARS]
    ids = {name: name + suffix for name, found in resources.items() if found["Type"] == _VERSION}
    renamed = {ids.get(name, name): _renamed(resource, ids) for name, resource in resources.items()}
    template["Resources"] = renamed
    template["Outputs"] = _renamed(template.get("Outputs", {}), ids)


def _renamed(value: Any, ids: Mapping[str, str]) -> Any:
    """Rename references to resources."""
    if isinstance(value, list):
        return [_renamed(inner, ids) for inner in value]
    if not isinstance(value, dict):
        return value
    changed = {name: _renamed(inner, ids) for name, inner in value.items()}
    if isinstance(referred := changed.get("Ref"), str):
        changed["Ref"] = ids.get(referred, referred)
    if isinstance(attribute := changed.get("Fn::GetAtt"), list):
        changed["Fn::GetAtt"] = [ids.get(attribute[0], attribute[0]), *attribute[1:]]
    if "DependsOn" in changed:
        found = changed["DependsOn"]
        needed = [found] if isinstance(found, str) else found
        changed["DependsOn"] = [ids.get(name, name) for name in needed]
    return changed
