"""Texts in a record of the query log, by the tenant's policy."""

import hashlib
from dataclasses import replace

import pytest

from tests.support.rag.query_logs import make_log
from vectorforge.errors import DatabaseUnavailableError
from vectorforge.pipeline.guardrails.log_text import LogText, LogTextPolicies, LogTexts, with_policy

LOG = replace(make_log(), query_text="Who is ann@example.org?", generated_response="Ann, +49 30 1234567.")


class Settings:
    """The tenant's own policy, and how often it was read."""

    def __init__(self, own: str | None = None) -> None:
        self.own = own
        self.read = 0
        self.error: Exception | None = None

    async def log_text(self) -> str | None:
        """Return the policy."""
        self.read += 1
        if self.error is not None:
            raise self.error
        return self.own


class Clock:
    """A clock set by the test."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("policy", "question", "answer"),
    [
        ("full", LOG.query_text, LOG.generated_response),
        ("redacted", "Who is [email]?", "Ann, [phone]."),
        ("off", "", ""),
    ],
)
def test_log_text_policies_transform_texts(policy: LogText, question: str, answer: str) -> None:
    logged = with_policy(LOG, policy, "acme")
    assert (logged.query_text, logged.generated_response) == (question, answer)
    kept = (
        LOG.request if policy == "full" else {**(LOG.request or {}), "sha256": None}
    )  # a hash tells a short text
    assert logged == replace(LOG, query_text=question, generated_response=answer, request=kept)


def test_hash_policy_is_stable_per_tenant_and_text() -> None:
    logged = with_policy(LOG, "hash", "acme")
    assert (
        logged.query_text
        == f"sha256:{hashlib.sha256(b'acme' + bytes(1) + LOG.query_text.encode()).hexdigest()}"
    )
    assert logged.query_text == with_policy(replace(LOG, generated_response=""), "hash", "acme").query_text
    assert logged.query_text != with_policy(LOG, "hash", "other").query_text
    assert with_policy(replace(LOG, generated_response=""), "hash", "acme").generated_response == ""


async def test_log_text_policy_is_read_at_most_once_a_minute() -> None:
    clock, settings = Clock(), Settings("off")
    texts = LogTexts(LogTextPolicies(clock=clock), settings, "acme", timeout_s=5)
    for clock.now in (0, 30, 59):
        assert (await texts.apply(LOG)).query_text == ""
    assert settings.read == 1
    settings.own, clock.now = None, 61
    assert (await texts.apply(LOG)).query_text == "Who is [email]?"  # the server's default
    texts.note("full")  # as read by the query's own statement
    assert (await texts.apply(LOG)).query_text == LOG.query_text
    assert settings.read == 2


async def test_unreadable_log_text_policy_logs_no_texts() -> None:  # fails closed
    clock, settings = Clock(), Settings("full")
    settings.error = DatabaseUnavailableError("down")
    texts = LogTexts(LogTextPolicies("full", clock=clock), settings, "acme", timeout_s=5)
    assert (await texts.apply(LOG)).query_text == ""
    assert (await texts.apply(LOG)).query_text == ""
    assert settings.read == 1  # an unavailable database is not queried for each record
    settings.error, clock.now = None, 2
    assert (await texts.apply(LOG)).query_text == LOG.query_text
    settings.error, clock.now = DatabaseUnavailableError("down"), 100
    assert (await texts.apply(LOG)).query_text == LOG.query_text  # the last one known


async def test_log_text_policies_are_separate_per_tenant() -> None:
    policies = LogTextPolicies()
    first = LogTexts(policies, Settings("off"), "a", timeout_s=5)
    second = LogTexts(policies, Settings("full"), "b", timeout_s=5)
    assert [(await texts.apply(LOG)).query_text for texts in (first, second)] == ["", LOG.query_text]
