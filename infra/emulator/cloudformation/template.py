"""Changes the production templates into ones that LocalStack can deploy; nothing else differs.

``resources`` has the tables of dropped resources. References to them become the given values; one without a
value is an error, except in permissions.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from infra.emulator.cloudformation.references import PLACEHOLDER, References, texts
from infra.emulator.cloudformation.resources import (
    DROPPED,
    DROPPED_WITH_THEIR_SUBJECT,
    KEPT,
    MAY_NAME_WHAT_IS_DROPPED,
    REMOVALS,
    WHOLE_ANSWERS,
    is_listed,
)
from infra.emulator.cloudformation.state_machine import BATCHES, emulated_definition

Template: TypeAlias = dict[str, Any]

_PARAMETER = "AWS::SSM::Parameter"
_STATE_MACHINE = "AWS::StepFunctions::StateMachine"


class EmulationError(Exception):
    """The templates cannot be changed; the text says which resource and what to do."""


@dataclass(slots=True)
class Report:
    """Report of the changes."""

    kept: Counter[str] = field(default_factory=Counter)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Counts by type and reason."""
    removed: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Counts of dropped parts by type, path and reason."""
    outputs: list[str] = field(default_factory=list)
    """Names of dropped outputs."""

    def lines(self) -> Iterator[str]:
        """Yield the report as lines of text."""
        yield f"kept {self.kept.total()}:"
        yield from (f"  {number:3} {name}" for name, number in sorted(self.kept.items()))
        yield f"dropped {self.dropped.total()}:"
        yield from (f"  {number:3} {name}: {why}" for (name, why), number in sorted(self.dropped.items()))
        yield f"changed {self.removed.total()}:"
        for (name, path, why), number in sorted(self.removed.items()):
            yield f"  {number:3} {name} without {path}: {why}"
        if self.outputs:
            yield f"dropped outputs: {', '.join(sorted(self.outputs))}"


def emulate(
    templates: Mapping[str, Template], values: Mapping[str, str]
) -> tuple[dict[str, Template], Report]:
    """Change the stacks for the emulator.

    Args:
        templates: By stack, in the order of deployment.
        values: Values for dropped resources by "<type>.<attribute>", or "<type>" for a Ref:
            "AWS::RDS::DBProxy.Endpoint".

    Raises:
        EmulationError: A resource type is in no table, or a value is missing.
    """
    report = Report()
    published: dict[str, str] = {}
    turned = {
        name: _Stack(deepcopy(found), values, published, report).turned() for name, found in templates.items()
    }
    for name, template in turned.items():
        _check_values(name, template)
    return turned, report


class _Stack:
    """One template in progress."""

    def __init__(
        self,
        template: Template,
        values: Mapping[str, str],
        published: dict[str, str],
        report: Report,
    ) -> None:
        self._template = template
        self._resources: dict[str, Any] = template.get("Resources", {})
        self._published = published
        self._report = report
        self._references = References(values)

    def turned(self) -> Template:
        self._drop_types()
        self._resolve_parameters()
        for resource in self._resources.values():
            self._remove_parts(resource)
            self._simplify_state_machine(resource)
            _invoke_buffered(resource)
            _authorize_nobody(resource)
        self._drop_dependents()
        self._template["Resources"] = {
            logical_id: self._references.resolved(_without_dependencies(resource, self._references.dropped))
            for logical_id, resource in self._resources.items()
        }
        self._resolve_outputs()
        self._template.get("Conditions", {}).pop("CDKMetadataAvailable", None)  # of what is dropped
        self._report.kept.update(resource["Type"] for resource in self._template["Resources"].values())
        return self._template

    # -- what is left out

    def _drop_types(self) -> None:
        unknown = set()
        for logical_id, resource in list(self._resources.items()):
            name = is_listed(resource["Type"], DROPPED)
            if name is not None:
                self._drop(logical_id, DROPPED[name])
            elif is_listed(resource["Type"], KEPT) is None:
                unknown.add(resource["Type"])
        if unknown:
            raise EmulationError(
                f"Not in infra/emulator/cloudformation/resources.py: {', '.join(sorted(unknown))}. "
                "Check whether LocalStack creates it, and add it to KEPT or DROPPED."
            )

    def _resolve_parameters(self) -> None:
        """Drop parameters of Parameter Store with values of dropped resources, and put these where read."""
        for logical_id, resource in list(self._resources.items()):
            if resource["Type"] == _PARAMETER:
                value = resource["Properties"]["Value"]
                if (local := self._references.resolved(value)) != value:
                    self._published[resource["Properties"]["Name"]] = local
                    self._drop(logical_id, "its value is in the other template")
        parameters = self._template.get("Parameters", {})
        for logical_id, parameter in list(parameters.items()):
            if parameter["Type"].startswith(_PARAMETER) and parameter.get("Default") in self._published:
                del parameters[logical_id]
                self._references.parameters[logical_id] = self._published[parameter["Default"]]

    def _drop_dependents(self) -> None:
        """Drop what depends on dropped resources, repeatedly."""
        before = -1
        while before != len(self._references.dropped):
            before = len(self._references.dropped)
            for logical_id, resource in list(self._resources.items()):
                if resource["Type"] in DROPPED_WITH_THEIR_SUBJECT and self._names_dropped(resource):
                    self._drop(logical_id, "its subject is dropped")

    def _drop(self, logical_id: str, reason: str) -> None:
        resource_type = self._resources.pop(logical_id)["Type"]
        self._references.dropped[logical_id] = resource_type
        self._report.dropped[resource_type, reason] += 1

    def _names_dropped(self, resource: Any) -> bool:
        return any(PLACEHOLDER in text for text in texts(self._references.resolved(resource)))

    def _remove_parts(self, resource: dict[str, Any]) -> None:
        for removal in REMOVALS:
            parent = resource if removal.resource_type == resource["Type"] else {}
            for key in removal.path[:-1]:
                parent = parent.get(key, {})
            if parent.pop(removal.path[-1], None) is not None:
                self._report.removed[removal.resource_type, ".".join(removal.path), removal.reason] += 1

    def _simplify_state_machine(self, resource: dict[str, Any]) -> None:
        if resource["Type"] == _STATE_MACHINE:
            properties = resource["Properties"]
            properties["DefinitionString"], left_out = emulated_definition(properties["DefinitionString"])
            self._report.removed[_STATE_MACHINE, "ItemBatcher", BATCHES] += left_out

    def _resolve_outputs(self) -> None:
        """Drop outputs of dropped resources; only dropped parts of other stacks import them."""
        outputs = self._template.get("Outputs", {})
        for name, output in list(outputs.items()):
            if self._references.resolved(output["Value"]) != References({}).resolved(output["Value"]):
                del outputs[name]
                self._report.outputs.append(name)


def _without_dependencies(resource: dict[str, Any], dropped: Mapping[str, str]) -> dict[str, Any]:
    found = resource.get("DependsOn", [])
    kept = [name for name in ([found] if isinstance(found, str) else found) if name not in dropped]
    rest = {key: value for key, value in resource.items() if key != "DependsOn"}
    return {**rest, "DependsOn": kept} if kept else rest


def _invoke_buffered(resource: dict[str, Any]) -> None:
    """Invoke the function of a method for a buffered answer; the function itself streams as in production."""
    if resource["Type"] != "AWS::ApiGateway::Method":
        return
    integration = resource["Properties"].get("Integration", {})
    if "Uri" in integration:
        uri = json.dumps(integration["Uri"])
        for streaming, whole in WHOLE_ANSWERS.items():
            uri = uri.replace(streaming, whole)
        integration["Uri"] = json.loads(uri)


def _authorize_nobody(resource: dict[str, Any]) -> None:
    """Remove the authorizer of a method; its key or token is still checked."""
    properties = resource.get("Properties", {})
    authorized = properties.get("AuthorizationType") in ("CUSTOM", "COGNITO_USER_POOLS")
    if resource["Type"] == "AWS::ApiGateway::Method" and authorized:
        properties["AuthorizationType"] = "NONE"


def _check_values(stack: str, template: Template) -> None:
    for logical_id, resource in template["Resources"].items():
        if resource["Type"] in MAY_NAME_WHAT_IS_DROPPED:
            continue
        for text in texts(resource):
            if PLACEHOLDER in text:
                needed = text.partition(PLACEHOLDER)[2]
                raise EmulationError(
                    f"{logical_id} ({resource['Type']}, {stack}) needs a value for {needed!r}, which is "
                    'dropped: add one to "references".'
                )
