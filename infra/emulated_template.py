"""Turns the production templates into ones that LocalStack can deploy; nothing else differs.

    python -m infra.emulated_template cdk.out --output cdk.out.local --values values.json

The tables of what is left out are in ``infra/emulated_resources.py``. References to what is left out become
the values given; one without a value is an error, unless it only names the resource in a permission. The
values file is a JSON object:

    {"references": {"AWS::RDS::DBProxy.Endpoint": "localhost:6432"}, "environment": {"NAME": "value"}}

A value with a port replaces host and port ("<endpoint>:5432"), since production's port is a part of the text
around the reference. "environment" is added to every function's variables.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from infra.emulated_assembly import AssemblyError, read_templates, write_assembly
from infra.emulated_resources import (
    DROPPED,
    DROPPED_WITH_THEIR_SUBJECT,
    KEPT,
    MAY_NAME_WHAT_IS_DROPPED,
    REMOVALS,
    WHOLE_ANSWERS,
    is_listed,
)
from infra.emulated_state_machine import BATCHES, emulated_definition

Template: TypeAlias = dict[str, Any]

_STATE_MACHINE = "AWS::StepFunctions::StateMachine"
_PLACEHOLDER = "dropped:"
_POSTGRES_PORT = ":5432"
_SUBSTITUTED = re.compile(r"\$\{([^}!]+)\}")


class EmulationError(Exception):
    """The templates cannot be turned; the text says which resource and what to do."""


@dataclass(frozen=True, slots=True)
class LocalValues:
    """What stands on this machine for what is left out."""

    references: Mapping[str, str] = field(default_factory=dict)
    """By "<type>.<attribute>", or "<type>" for a Ref."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that are added to every function."""


@dataclass(slots=True)
class Report:
    """What was done, to be printed."""

    kept: Counter[str] = field(default_factory=Counter)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By type and reason."""
    removed: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Parts of resources, by type, path and reason."""
    outputs: list[str] = field(default_factory=list)
    """Names of outputs that told of what is left out."""

    def lines(self) -> Iterator[str]:
        """As text."""
        yield f"kept {self.kept.total()}:"
        yield from (f"  {number:3} {name}" for name, number in sorted(self.kept.items()))
        yield f"dropped {self.dropped.total()}:"
        yield from (f"  {number:3} {name}: {why}" for (name, why), number in sorted(self.dropped.items()))
        yield f"changed {self.removed.total()}:"
        for (name, path, why), number in sorted(self.removed.items()):
            yield f"  {number:3} {name} without {path}: {why}"
        if self.outputs:
            yield f"outputs left out: {', '.join(sorted(self.outputs))}"


def emulate(templates: Mapping[str, Template], values: LocalValues) -> tuple[dict[str, Template], Report]:
    """The same stacks for the emulator.

    Args:
        templates: By stack, in the order of deployment.
        values: What stands for what is left out.

    Raises:
        EmulationError: A resource type is in no table, or something that stays needs a value that is not
            given.
    """
    report = Report()
    exports: dict[str, Any] = {}
    turned = {
        name: _Stack(deepcopy(found), values, exports, report).turned() for name, found in templates.items()
    }
    for name, template in turned.items():
        _check_values(name, template)
    return turned, report


class _Stack:
    """One template on its way."""

    def __init__(
        self, template: Template, values: LocalValues, exports: dict[str, Any], report: Report
    ) -> None:
        self._template = template
        self._resources: dict[str, Any] = template.get("Resources", {})
        self._values = values
        self._exports = exports
        self._report = report
        self._dropped: dict[str, str] = {}

    def turned(self) -> Template:
        self._drop_types()
        for resource in self._resources.values():
            self._remove_parts(resource)
            self._simplify_state_machine(resource)
            _invoke_buffered(resource)
        self._drop_dependents()
        self._template["Resources"] = {
            logical_id: self._resolved(_without_dependencies(resource, self._dropped))
            for logical_id, resource in self._resources.items()
        }
        self._add_environment()
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
                f"Not in infra/emulated_resources.py: {', '.join(sorted(unknown))}. Try whether LocalStack "
                "makes it, and put it into KEPT or DROPPED."
            )

    def _drop_dependents(self) -> None:
        """Leave out what makes no sense without what is left out; that may again leave something out."""
        before = -1
        while before != len(self._dropped):
            before = len(self._dropped)
            for logical_id, resource in list(self._resources.items()):
                if resource["Type"] in DROPPED_WITH_THEIR_SUBJECT and self._names_dropped(resource):
                    self._drop(logical_id, "what it is about is dropped")

    def _drop(self, logical_id: str, reason: str) -> None:
        resource_type = self._resources.pop(logical_id)["Type"]
        self._dropped[logical_id] = resource_type
        self._report.dropped[resource_type, reason] += 1

    def _names_dropped(self, resource: Any) -> bool:
        return any(_PLACEHOLDER in text for text in _strings(self._resolved(resource)))

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

    # -- what stands for it

    def _resolved(self, value: Any) -> Any:
        """The same with every reference to what is left out replaced."""
        if isinstance(value, list):
            return [self._resolved(inner) for inner in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((name, argument),) = value.items()
            reference = self._reference(name, argument)
            if reference is not None:
                return reference
        resolved = {name: self._resolved(inner) for name, inner in value.items()}
        return self._folded(resolved) if len(resolved) == 1 else resolved

    def _reference(self, name: str, argument: Any) -> Any:
        """What an intrinsic function that names something left out comes to; None: it names nothing such."""
        if name == "Ref" and argument in self._dropped:
            return self._value(argument, None)
        if name == "Fn::GetAtt":
            path = argument if isinstance(argument, str) else ".".join(argument)
            logical_id, _, attribute = path.partition(".")
            return self._value(logical_id, attribute) if logical_id in self._dropped else None
        if name == "Fn::ImportValue" and isinstance(argument, str):
            return self._exports.get(argument)
        if name == "Fn::Sub" and isinstance(argument, str):
            return {name: _SUBSTITUTED.sub(self._substitute, argument)}
        return None

    def _substitute(self, found: re.Match[str]) -> str:
        logical_id, _, attribute = found[1].partition(".")
        return self._value(logical_id, attribute or None) if logical_id in self._dropped else found[0]

    def _value(self, logical_id: str, attribute: str | None) -> str:
        resource_type = self._dropped[logical_id]
        name = resource_type if attribute is None else f"{resource_type}.{attribute}"
        return self._values.references.get(name, f"{_PLACEHOLDER}{name}")

    def _folded(self, call: dict[str, Any]) -> Any:
        """A Join of texts is a text; any other function of a placeholder is that placeholder."""
        ((name, argument),) = call.items()
        if name == "Fn::Join" and argument[0] == "" and isinstance(argument[1], list):
            parts = [self._with_port(part) for part in _merged(argument[1])]
            return parts[0] if len(parts) == 1 and isinstance(parts[0], str) else {name: ["", parts]}
        if name.startswith("Fn::") and isinstance(argument, list):
            texts = [text for text in argument if isinstance(text, str) and text.startswith(_PLACEHOLDER)]
            return texts[0] if texts else call
        return call

    def _with_port(self, part: Any) -> Any:
        for value in self._values.references.values():
            if isinstance(part, str) and re.search(r":\d+$", value):
                part = part.replace(f"{value}{_POSTGRES_PORT}", value)
        return part

    def _add_environment(self) -> None:
        for resource in self._template["Resources"].values():
            if resource["Type"] == "AWS::Lambda::Function" and self._values.environment:
                variables = resource["Properties"].setdefault("Environment", {}).setdefault("Variables", {})
                variables.update(self._values.environment)

    def _resolve_outputs(self) -> None:
        """Leave out what told of something left out; other stacks get the value instead."""
        outputs = self._template.get("Outputs", {})
        for name, output in list(outputs.items()):
            value = self._resolved(output["Value"])
            if value == output["Value"]:
                continue
            del outputs[name]
            self._report.outputs.append(name)
            if export := output.get("Export"):
                self._exports[export["Name"]] = value


def _without_dependencies(resource: dict[str, Any], dropped: Mapping[str, str]) -> dict[str, Any]:
    found = resource.get("DependsOn", [])
    kept = [name for name in ([found] if isinstance(found, str) else found) if name not in dropped]
    rest = {key: value for key, value in resource.items() if key != "DependsOn"}
    return {**rest, "DependsOn": kept} if kept else rest


def _invoke_buffered(resource: dict[str, Any]) -> None:
    """Let a method invoke its function for a whole answer; the function itself streams as in production."""
    if resource["Type"] != "AWS::ApiGateway::Method":
        return
    integration = resource["Properties"].get("Integration", {})
    if "Uri" in integration:
        integration["Uri"] = _mapped(integration["Uri"], _buffered)


def _buffered(text: str) -> str:
    for streaming, whole in WHOLE_ANSWERS.items():
        text = text.replace(streaming, whole)
    return text


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped(inner, change) for inner in value]
    if isinstance(value, dict):
        return {name: _mapped(inner, change) for name, inner in value.items()}
    return value


def _merged(parts: list[Any]) -> list[Any]:
    """The same parts with texts that follow each other as one."""
    merged: list[Any] = []
    for part in parts:
        if merged and isinstance(part, str) and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return merged


def _strings(value: Any) -> Iterator[str]:
    """Every text in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def _check_values(stack: str, template: Template) -> None:
    for logical_id, resource in template["Resources"].items():
        if resource["Type"] in MAY_NAME_WHAT_IS_DROPPED:
            continue
        for text in _strings(resource):
            if _PLACEHOLDER in text:
                needed = text.partition(_PLACEHOLDER)[2]
                raise EmulationError(
                    f"{logical_id} ({resource['Type']}, {stack}) needs a value for {needed!r}, which is "
                    'left out: give one in "references".'
                )


def main(arguments: Sequence[str] | None = None) -> int:
    """Turn an assembly; 0, or 1 with the reason on stderr."""
    summary, _, description = __doc__.partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m infra.emulated_template",
        description=summary,
        epilog=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("assembly", type=Path, help="what cdk synth made")
    parser.add_argument("--output", type=Path, required=True, help="folder of the assembly to deploy")
    parser.add_argument(
        "--values", type=Path, required=True, help="JSON file with what stands for what is left out"
    )
    chosen = parser.parse_args(arguments)
    try:
        given = json.loads(chosen.values.read_text())
        turned, report = emulate(read_templates(chosen.assembly), LocalValues(**given))
        write_assembly(chosen.assembly, chosen.output, turned)
    except (AssemblyError, EmulationError, OSError, ValueError, TypeError) as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    sys.stdout.write("\n".join(report.lines()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
