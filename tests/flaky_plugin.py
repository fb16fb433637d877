"""A pytest plugin that reports tests that passed only on their second attempt.

``.ci/run`` reruns a failed test once (pytest-rerunfailures), since thousands of tests drive real processes
against real clocks on two cores. Each is a bug to fix, and a run with more than ``MOST_FLAKY`` of them fails.
"""

import pytest

MOST_FLAKY = 5
"""Maximum number of tests per run that may pass on their second attempt."""
_LAST_LINES = 60
"""Printed lines of the first attempt's failure: the assertion and its traceback."""


def _flaky(reporter: pytest.TerminalReporter) -> dict[str, str]:
    """Return the first failure of each flaky test, by the test's id."""
    passed = {report.nodeid for report in reporter.stats.get("passed", [])}
    reran = [report for report in reporter.stats.get("rerun", []) if report.nodeid in passed]
    return {report.nodeid: report.longreprtext for report in sorted(reran, key=lambda r: r.nodeid)}


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run with too many flaky tests."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if isinstance(reporter, pytest.TerminalReporter) and len(_flaky(reporter)) > MOST_FLAKY:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each flaky test with its first failure as a bug to fix."""
    if flaky := _flaky(terminalreporter):
        terminalreporter.section(
            f"{len(flaky)} flaky tests, at most {MOST_FLAKY} allowed: bugs to fix", red=True
        )
        for nodeid, failure in flaky.items():
            terminalreporter.line(nodeid, red=True)
            for line in failure.splitlines()[-_LAST_LINES:]:
                terminalreporter.line(f"    {line}")
