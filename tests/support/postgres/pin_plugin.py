"""A pytest plugin that fails tests whose statements would have pinned a connection of RDS Proxy.

A test that pins on purpose declares the rule: ``@pytest.mark.pins(PinRule.SETTING)``. It also fails if it
did not pin. Workers of pytest-xdist have a detector each; the process that started them adds up their counts.
"""

import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres.pin_detector import PinDetector
from vectorforge.local.postgres import SUPERUSER

_DETECTOR = pytest.StashKey[PinDetector]()
_PINS = pytest.StashKey[Counter[str]]()
_PASSED = pytest.StashKey[bool]()
_REPORT = "pin_detector"


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", "pins(*rules): breaks these rules of RDS Proxy's pinning on purpose")
    config.stash[_PINS] = Counter[str]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record that the test's body ended without an error."""
    report = yield
    item.stash[_PASSED] = call.when == "call" and report.passed
    return report


@pytest.fixture(scope="session")
def pin_detector(pytestconfig: pytest.Config) -> Iterator[PinDetector]:
    """Start the pin detector between the tests and their database. The migrator bypasses RDS Proxy."""
    with (
        tempfile.TemporaryDirectory(prefix="vf-pins-") as folder,
        PinDetector(Path(folder), unjudged=[SUPERUSER]) as detector,
    ):
        pytestconfig.stash[_DETECTOR] = detector
        yield detector


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Judge the test after its fixtures are torn down, and with the last test the rest of the session."""
    try:
        return (yield)
    finally:
        detector = item.config.stash.get(_DETECTOR, None)
        if detector is not None:
            _judge(item, detector)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report the counts of this process to the process that started it."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_REPORT] = dict(_counts(session.config))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Add what a worker counted (https://pytest-xdist.readthedocs.io/en/stable/how-to.html)."""
    output = getattr(node, "workeroutput", {})  # a crashed worker has none
    config: pytest.Config = node.config
    counts = config.stash[_PINS]
    counts.update(output.get(_REPORT, {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print how much was judged: no pins among no statements would mean nothing."""
    counts = _counts(config)
    if not counts["connections"]:
        return
    terminalreporter.write_line(
        f"pin detector: {counts['statements']:,} statements, {counts['connections']:,} connections, "
        f"{counts['unexpected']} pins ({counts['deliberate']} on purpose)"
    )


def _counts(config: pytest.Config) -> Counter[str]:
    counts = config.stash[_PINS].copy()
    detector = config.stash.get(_DETECTOR, None)
    if detector is not None:
        counts["statements"] += detector.statements
        counts["connections"] += detector.connections.total()
    return counts


def _judge(item: pytest.Item, detector: PinDetector) -> None:
    deliberate = {rule for mark in item.iter_markers("pins") for rule in mark.args}
    pins = detector.take()
    unexpected = [pin for pin in pins if pin.rule not in deliberate]
    counts = item.config.stash[_PINS]
    counts["unexpected"] += len(unexpected)
    counts["deliberate"] += len(pins) - len(unexpected)
    found = [f"would pin a connection of RDS Proxy by {pin}" for pin in unexpected]
    if item.stash.get(_PASSED, False):
        missing = deliberate - {pin.rule for pin in pins}
        found += [f"is marked to break the rule of {rule}, and did not" for rule in sorted(missing)]
    if found:
        pytest.fail("\n".join(found), pytrace=False)
