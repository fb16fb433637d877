"""A state machine's definition in the part of Amazon States Language that LocalStack 4.13.1 knows."""

import json
from collections.abc import Iterator
from typing import Any

BATCHES = "LocalStack has no batches: the function gets a list of one item"
_WHOLE_BATCH = "$.Items"
_ONE_ITEM = "States.Array($)"


def emulated_definition(text: str) -> tuple[str, int]:
    """The same definition without ``ItemBatcher``; what took a batch's items gets a list of one.

    https://docs.aws.amazon.com/step-functions/latest/dg/input-output-itembatcher.html. LocalStack also takes
    no whole number for a percentage.

    Args:
        text: JSON; what CloudFormation substitutes is still in it.

    Returns:
        The definition, and how many batchers were left out.
    """
    definition = json.loads(text)
    left_out = 0
    for state in _states(definition):
        if isinstance(state.get("ToleratedFailurePercentage"), int):
            state["ToleratedFailurePercentage"] = float(state["ToleratedFailurePercentage"])
        if state.pop("ItemBatcher", None) is not None:
            left_out += 1
            state["ItemProcessor"] = _with_one_item(state["ItemProcessor"])
    return json.dumps(definition), left_out


def _states(machine: Any) -> Iterator[dict[str, Any]]:
    """Every state, also those inside of others."""
    if isinstance(machine, dict):
        yield from machine.get("States", {}).values()
        for inner in machine.values():
            yield from _states(inner)
    elif isinstance(machine, list):
        for inner in machine:
            yield from _states(inner)


def _with_one_item(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _ONE_ITEM if inner == _WHOLE_BATCH and name.endswith(".$") else _with_one_item(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_with_one_item(inner) for inner in value]
    return value
