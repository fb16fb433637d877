"""A pytest plugin that collects at less cost, and keeps tests that share an expensive fixture on one worker.

Workers import the tests one after another: at once, all would compile the same modules; importing what the
first has compiled takes a third of the time. Collecting leaves a million objects, of which a full collection
of garbage takes half a second. They live to the end, so none looks at them again.
"""

import fcntl
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ON_ONE_WORKER = ("tests/infra/stacks/", "tests/quality/")
"""Folders whose files share a session's fixture, or the CDK's process, which take longer than their tests."""
FIRST = ("tests/infra/test_deploy_local.py", *ON_ONE_WORKER)
"""Files and folders that start a run: one of them alone at its end would leave the other workers idle."""


@contextmanager
def _turn(config: pytest.Config) -> Iterator[None]:
    """Wait until no other worker of this run collects."""
    if not hasattr(config, "workerinput"):
        yield
        return
    shared = Path(config.getoption("basetemp")).parent
    with (shared / "collection.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect in turn and without the garbage collector, which ignores the collected objects from then on."""
    with _turn(session.config):
        gc.disable()
        try:
            return (yield)
        finally:
            gc.freeze()  # https://docs.python.org/3/library/gc.html#gc.freeze
            gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the longest files to the beginning."""
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute by file, as ``--dist loadfile``, and the folders of ``ON_ONE_WORKER`` whole."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    scheduler = LoadFileScheduling(config, log)
    file_of = scheduler._split_scope

    def file_or_folder(nodeid: str) -> str:
        folders = (folder for folder in ON_ONE_WORKER if nodeid.startswith(folder))
        return next(folders, file_of(nodeid))

    scheduler._split_scope = file_or_folder
    return scheduler
