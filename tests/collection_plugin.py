"""A pytest plugin that lets one worker after another import the tests.

At once, all would compile the same modules; importing what the first has compiled takes a third of the time.
"""

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Wait until no other worker of this run collects."""
    if not hasattr(session.config, "workerinput"):
        return (yield)
    shared = Path(session.config.getoption("basetemp")).parent
    with (shared / "collection.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return (yield)
