"""Run rows of the fault matrix in sequence, each with a new process of the service."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack

import httpx2

from tests.campaigns.faults.audit import RowResult, audit
from tests.campaigns.faults.fault import Fault
from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.system import System

_ROW_TIMEOUT_S = 900
_FIRST = 4
"""Queries before the fault, so that the pool has connections and the modules are loaded."""


async def run_faults(
    system: System,
    faults: Sequence[type[Fault]],
    *,
    requests: int,
    settings: Mapping[str, str] | None = None,
    on_row: Callable[[Fault], None] = lambda _: None,
    on_answer: Callable[[Answer], None] = lambda _: None,
    on_result: Callable[[RowResult], None] = lambda _: None,
) -> list[RowResult]:
    """Inject each fault into the running system under load, and audit.

    Args:
        system: The running system.
        faults: Rows, in order.
        requests: Number of requests per row.
        settings: Settings of one service for all rows, instead of a new one for each with the row's own.
        on_row: Called before each row.
        on_answer: Called after each request.
        on_result: Called after each row.
    """
    results = []
    async with AsyncExitStack() as stack:
        client = None if settings is None else await stack.enter_async_context(system.serving(settings))
        for kind in faults:
            fault = kind()
            on_row(fault)
            try:
                async with asyncio.timeout(_ROW_TIMEOUT_S):
                    result = await _run(system, fault, requests, on_answer, client)
            except Exception as exc:  # noqa: BLE001 - a row that breaks is a finding; the others go on
                result = RowResult(fault.number, fault.name, error=f"{type(exc).__name__}: {exc}")
            on_result(result)
            results.append(result)
    return results


async def _run(
    system: System,
    fault: Fault,
    requests: int,
    on_answer: Callable[[Answer], None],
    shared: httpx2.AsyncClient | None,
) -> RowResult:
    if missing := fault.missing():
        return RowResult(fault.number, fault.name, missing=missing)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(fault.serve(system)) if shared is None else shared
        load = Load(
            client,
            fault.number,
            requests,
            at_once=fault.at_once,
            fields=fault.request,
            leaves=fault.leaves,
            on_answer=on_answer,
            asking=fault.ask,
        )
        await Load(client, 0, _FIRST).run()  # a warm process
        async with fault.inject(system, load):
            await load.run()
        await system.drain()
        return await audit(fault, load, system)
