"""A plugin for pytest that names the tests which passed only when they were tried again.

``make test`` tries a test that failed once more (pytest-rerunfailures): thousands of them drive real
processes against real clocks on two cores. More than ``MOST_FLAKY`` of those are no bad luck: the run fails.
"""

import pytest

MOST_FLAKY = 5
"""Tests of one run that may pass at their second try only."""


def _flaky(reporter: pytest.TerminalReporter) -> list[str]:
    tried_again = {report.nodeid for report in reporter.stats.get("rerun", [])}
    return sorted(tried_again & {report.nodeid for report in reporter.stats.get("passed", [])})


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run with too many of them."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if isinstance(reporter, pytest.TerminalReporter) and len(_flaky(reporter)) > MOST_FLAKY:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name them: each is a fault of the test or of what it tests."""
    if flaky := _flaky(terminalreporter):
        terminalreporter.section(f"{len(flaky)} flaky, at most {MOST_FLAKY} are let pass", red=True)
        for nodeid in flaky:
            terminalreporter.line(nodeid)
