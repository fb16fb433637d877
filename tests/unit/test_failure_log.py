"""Unexpected errors are logged with type and location of every cause, without any text."""

import logging

import pytest

from vectorforge.errors import log_unexpected

PLANTED = "postgresql://admin:hunter2@10.0.0.1/prod"


def broken(error: Exception) -> None:
    try:
        raise OSError(PLANTED)
    except OSError as exc:
        raise error from exc


def logged(caplog: pytest.LogCaptureFixture, error: Exception) -> str:
    try:
        broken(error)
    except (ValueError, ExceptionGroup) as exc:
        log_unexpected(logging.getLogger("vectorforge.x"), "Request 17 failed", exc)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is None  # a handler would format it, with the text
    assert record.name == "vectorforge.x"
    return record.getMessage()


def test_failure_log_lists_type_and_location_without_message(caplog: pytest.LogCaptureFixture) -> None:
    # B-040, C22
    error = ValueError(f"cannot reach {PLANTED}")
    error.add_note(PLANTED)
    text = logged(caplog, error)
    assert text.startswith("Request 17 failed: builtins.ValueError\n")
    assert "builtins.OSError" in text
    assert "test_failure_log.py" in text
    assert "hunter2" not in text


def test_failure_log_names_members_of_exception_group(caplog: pytest.LogCaptureFixture) -> None:
    text = logged(caplog, ExceptionGroup(PLANTED, [KeyError(PLANTED), TypeError(PLANTED)]))
    assert "builtins.KeyError" in text
    assert "builtins.TypeError" in text
    assert "hunter2" not in text


def test_failure_log_of_cyclic_causes_terminates(caplog: pytest.LogCaptureFixture) -> None:
    first, second = ValueError("1"), KeyError("2")
    first.__cause__, second.__cause__ = second, first
    log_unexpected(logging.getLogger(__name__), "Ring", first)
    assert caplog.text.count("builtins.") == 2
