"""A plugin for pytest that names the tests which passed only when they were tried again.

``make test`` tries a test that failed once more (pytest-rerunfailures): thousands of them drive real
processes against real clocks on two cores. More than ``MOST_FLAKY`` of those are no bad luck: the run fails.
"""

import pytest

MOST_FLAKY = 5
"""Tests of one run that may pass at their second try only."""
_LAST_LINES = 60
"""Of a first try's failure: the assertion and where the code stood."""


def _flaky(reporter: pytest.TerminalReporter) -> dict[str, str]:
    """How each failed at first, by the test's id."""
    passed = {report.nodeid for report in reporter.stats.get("passed", [])}
    tried_again = [report for report in reporter.stats.get("rerun", []) if report.nodeid in passed]
    return {report.nodeid: report.longreprtext for report in sorted(tried_again, key=lambda r: r.nodeid)}


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run with too many of them."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if isinstance(reporter, pytest.TerminalReporter) and len(_flaky(reporter)) > MOST_FLAKY:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name them and how they failed: each is a fault of the test or of what it tests."""
    if flaky := _flaky(terminalreporter):
        terminalreporter.section(f"{len(flaky)} flaky, at most {MOST_FLAKY} are let pass", red=True)
        for nodeid, failure in flaky.items():
            terminalreporter.line(nodeid, red=True)
            for line in failure.splitlines()[-_LAST_LINES:]:
                terminalreporter.line(f"    {line}")
