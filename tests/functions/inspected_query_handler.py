"""The query function, which also answers ``{"inspect": true}`` with its process's resources."""

import asyncio
import gc
import os
import threading
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType
from typing import Any

from vectorforge.aws.handlers.query import QueryFunction


class InspectedQueryFunction:
    """Wraps a handler, with the methods that our runtime calls."""

    def __init__(self) -> None:
        self._function = QueryFunction()

    def startup(self) -> None:
        self._function.startup()

    def shutdown(self) -> None:
        self._function.shutdown()

    def __call__(self, event: dict[str, Any], context: Any) -> Any:
        return _held() if event.get("inspect") else self._function(event, context)


def _held() -> dict[str, int]:
    """Return counts of resources that could leak; memory in bytes."""
    gc.collect()
    found = [thing for thing in gc.get_objects() if type(thing) in _KINDS]
    descriptors = [_target(path) for path in Path("/proc/self/fd").iterdir()]
    return {
        "tasks": sum(type(thing) is asyncio.Task and not thing.done() for thing in found),
        "async generators": sum(
            type(thing) is AsyncGeneratorType and thing.ag_frame is not None for thing in found
        ),
        "coroutines": sum(type(thing) is CoroutineType and thing.cr_frame is not None for thing in found),
        "sockets": sum(target.startswith("socket:") for target in descriptors),
        "files": len(descriptors),
        "threads": threading.active_count(),
        "memory": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
    }


_KINDS = (asyncio.Task, AsyncGeneratorType, CoroutineType)


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except FileNotFoundError:  # the one that reads the folder
        return ""


handler = InspectedQueryFunction()
