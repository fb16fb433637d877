"""Health checks: probes registered by name and run on request."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ComponentHealth:
    """Result of one probe."""

    name: str
    healthy: bool
    detail: str = ""
    """Reason of a failure in our words; never a vendor's text."""
    latency_ms: float = 0.0


class HealthChecker:
    """Probes of one application."""

    def __init__(self, *, timeout_s: float = 5.0) -> None:
        self._probes: dict[str, Callable[[], Awaitable[ComponentHealth]]] = {}
        self._timeout_s = timeout_s

    def register(self, name: str, probe: Callable[[], Awaitable[ComponentHealth]]) -> None:
        """Add a probe; a second one of the same name replaces the first."""
        self._probes[name] = probe

    def names(self) -> list[str]:
        """Return the names of the probes, in the order of registration."""
        return list(self._probes)

    async def check(self) -> list[ComponentHealth]:
        """Run all probes concurrently, each for at most ``timeout_s``; return results in order."""
        return list(await asyncio.gather(*(self._run(name) for name in self._probes)))

    async def _run(self, name: str) -> ComponentHealth:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._probes[name]()
        except TimeoutError:
            detail = f"No answer within {self._timeout_s:g} s"
        except Exception as exc:  # noqa: BLE001 - a probe may fail in any way
            detail = type(exc).__name__
        return ComponentHealth(name, False, detail, (time.perf_counter() - started) * 1000)
