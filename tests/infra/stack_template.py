"""A synthesized template in a readable form."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_HASH = re.compile(r"[0-9A-F]{8}$")
"""CDK's hash at the end of a logical id."""
_PUBLISHED = re.compile(
    r"SsmParameterValuevectorforge\w+?database(\w+?)C96584B6F00A464EAD1953AFF4B05118Parameter"
)
"""Parameter of a template with a value of ``infra.data.published_values``; the hash is CDK's constant."""
_EXPORT_HASH = re.compile(r"[0-9A-F]{8}")
_EXPORT_KIND = re.compile(r".*:ExportsOutput(Ref|FnGetAtt)")


class StackTemplate:
    """A template with its references written as short text: ``QueryLogOverflow.Arn/query-logs/*``.

    Args:
        template: Template as written by CDK.
    """

    def __init__(self, template: Mapping[str, Any]) -> None:
        self.resources: dict[str, dict[str, Any]] = {
            short(key): resource for key, resource in template["Resources"].items()
        }
        self.outputs: Mapping[str, Any] = template.get("Outputs", {})

    def of_kind(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return the properties of the resources of a type by short logical id."""
        return {
            key: resource.get("Properties", {})
            for key, resource in self.resources.items()
            if resource["Type"] == kind
        }

    def dependencies(self, resource: str) -> set[str]:
        """Return the direct dependencies of a resource, explicit or by reference."""
        return set(_references(self.resources[resource]))

    def all_dependencies(self, resource: str) -> set[str]:
        """Return the transitive dependencies of a resource."""
        found: set[str] = set()
        waiting = [resource]
        while waiting:
            new = {key for key in self.dependencies(waiting.pop()) if key in self.resources} - found
            found |= new
            waiting += new
        return found

    def statements(self, role: str) -> list[dict[str, Any]]:
        """Return the statements of all policies of a role."""
        assert not {"Policies", "ManagedPolicyArns"} & set(self.resources[role]["Properties"])
        return [
            statement
            for policy in self.of_kind("AWS::IAM::Policy").values()
            if role in [text(attached) for attached in policy["Roles"]]
            for statement in policy["PolicyDocument"]["Statement"]
        ]

    def permissions(self, role: str) -> set[tuple[str, str]]:
        """Return every (action, resource) permitted to a role; statements with Deny are ignored."""
        return {
            (action, text(resource))
            for statement in self.statements(role)
            if statement["Effect"] == "Allow"
            for action in as_list(statement["Action"])
            for resource in as_list(statement["Resource"])
        }


def as_list(value: Any) -> list[Any]:
    """Return a value that may be a single item or a list as a list."""
    return value if isinstance(value, list) else [value]


def short(logical_id: str) -> str:
    """Return a logical id without CDK's hash."""
    return _HASH.sub("", logical_id)


def text(value: Any) -> str:
    """Return an expression of CloudFormation as short text."""
    match value:
        case {"Ref": name}:
            return _PUBLISHED.sub(r"database.\1", short(name))
        case {"Fn::GetAtt": [name, attribute]}:
            return f"{short(name)}.{attribute}"
        case {"Fn::ImportValue": name}:
            return _EXPORT_HASH.sub(".", _EXPORT_KIND.sub("", name)).rstrip(".")
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(text(part) for part in parts)
        case {"Fn::Select": [number, {"Fn::Split": [separator, whole]}]}:
            return f"{text(whole)}[{number}]"
        case _:
            return str(value)


def _references(value: Any) -> Iterator[str]:
    match value:
        case {"Ref": name}:
            yield short(name)
        case {"Fn::GetAtt": [name, _]}:
            yield short(name)
        case dict():
            yield from (short(name) for name in as_list(value.get("DependsOn", [])))
            for part in value.values():
                yield from _references(part)
        case list():
            for part in value:
                yield from _references(part)
        case _:
            return
