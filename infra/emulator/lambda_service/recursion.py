"""Recursive loop detection: counts the events of a chain that reach a function.

The trace header lists the functions of an event's chain. SDKs send it with each call inside a function, SQS
stores it with the message, and Lambda counts the next hop.

https://docs.aws.amazon.com/lambda/latest/dg/invocation-recursion.html
"""

import hashlib
from urllib.parse import unquote

MAX_HOPS = 16
"""Limit of one chain and function; the next event is dropped unless the function allows loops."""
_LINEAGE = "Lineage"


class RecursionStoppedError(Exception):
    """The function has been reached ``MAX_HOPS`` times by this chain of events, and does not allow loops."""


def count_hop(trace_header: str, function_name: str) -> tuple[str, int]:
    """Add one hop to a trace header.

    Args:
        trace_header: ``Root=...;Parent=...;Sampled=...``, with or without ``Lineage=<hash>:<hops>|...``.
        function_name: Function that receives the event.

    Returns:
        The header for the function, and the number of times that the chain has reached it.
    """
    fields, lineage = _split(trace_header)
    key = hashlib.sha256(function_name.encode()).hexdigest()[:8]
    hops = lineage[key] = lineage.get(key, 0) + 1
    written = "|".join(f"{function}:{count}" for function, count in lineage.items())
    return ";".join([*fields, f"{_LINEAGE}={written}"]), hops


def total_hops(trace_header: str) -> int:
    """Count the hops of a chain through all functions; 0 if it started outside of Lambda."""
    return sum(_split(trace_header)[1].values())


def _split(trace_header: str) -> tuple[list[str], dict[str, int]]:
    fields: list[str] = []
    lineage: dict[str, int] = {}
    for field in unquote(trace_header).split(";"):  # botocore writes "|" as "%7C"
        name, _, value = field.partition("=")
        if name != _LINEAGE:
            fields.append(field)
            continue
        for hop in value.split("|"):
            function, _, count = hop.rpartition(":")
            lineage[function] = int(count)
    return fields, lineage
