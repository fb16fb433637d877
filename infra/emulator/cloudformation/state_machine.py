"""State machines in the subset of Amazon States Language that LocalStack 4.13.1 supports."""

import json
from collections.abc import Iterator
from typing import Any

BATCHES = "LocalStack has no batches: the function gets a list of one item"
_WHOLE_BATCH = "$.Items"
_ONE_ITEM = "States.Array($)"


def emulated_definition(text: str) -> tuple[str, int]:
    """Remove ``ItemBatcher``: functions get lists of one item instead of batches.

    https://docs.aws.amazon.com/step-functions/latest/dg/input-output-itembatcher.html. LocalStack also
    rejects integers for percentages.

    Args:
        text: JSON with CloudFormation's placeholders.

    Returns:
        The definition, and the number of removed batchers.
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
    """Yield every state, including nested ones."""
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
