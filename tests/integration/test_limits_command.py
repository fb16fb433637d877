"""``vectorforge limits`` as an operator uses it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from vectorforge.cli.app import run
from vectorforge.local.postgres import EmbeddedPostgres

Command = Callable[..., Any]


@pytest.fixture
def limits(
    postgres_server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run the command with --json; return value and origin of each limit, or the text of an error."""
    monkeypatch.setenv("VECTORFORGE_DATABASE_URL", postgres_server.app_url)

    def call(*arguments: str, code: int = 0) -> Any:
        assert run(["limits", *arguments, "--json"]) == code
        out, err = capsys.readouterr()
        if code:
            return json.loads(err)["error"]["message"]
        return {row["name"]: (row["limit"], row["from"]) for row in json.loads(out)["limits"]}

    return call


def test_limits_are_shown_set_and_removed(
    limits: Command, make_tenant: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = make_tenant()
    assert set(limits("show", tenant).values()) == {(None, "none")}
    limits("set", tenant, "--requests-per-minute", "120", "--cost-per-month-usd", "49.90")
    shown = limits("set", tenant, "--concurrent-streams", "4")
    assert shown == {
        "requests_per_minute": (120, "tenant"),
        "tokens_per_day": (None, "none"),
        "cost_per_month_usd": (49.9, "tenant"),
        "concurrent_streams": (4, "tenant"),
    }
    monkeypatch.setenv("VECTORFORGE_LIMIT_REQUESTS_PER_MINUTE", "30")
    shown = limits("set", tenant, "--requests-per-minute", "default")
    assert (shown["requests_per_minute"], shown["concurrent_streams"]) == ((30, "server"), (4, "tenant"))
    assert limits("show", make_tenant())["concurrent_streams"] == (None, "none")


def test_show_without_tenant_uses_local_tenant(
    postgres_server: EmbeddedPostgres,
    make_tenant: Callable[[], str],
    limits: Command,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = make_tenant()
    monkeypatch.setenv("VECTORFORGE_LOCAL_TENANT", own)
    limits("set", own, "--concurrent-streams", "3")
    limits("set", make_tenant(), "--concurrent-streams", "5")
    assert limits("show")["concurrent_streams"] == (3, "tenant")
    assert run(["limits", "show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tenant"] == own


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Give a limit"),
        (("--requests-per-minute", "many"), "--requests-per-minute must be a number or 'default'."),
        (("--requests-per-minute", "1.5"), "must be a number"),
        (("--cost-per-month-usd", "NaN"), "must be a number"),
        (("--cost-per-month-usd", "0.001"), "cost_per_month_usd must be between 0.01 and"),
        (("--tokens-per-day", "0"), "tokens_per_day must be between 1 and"),
        (("--concurrent-streams", "1000001"), "concurrent_streams must be between 1 and 1000000."),
    ],
)
def test_invalid_limit_is_rejected(
    limits: Command, make_tenant: Callable[[], str], arguments: tuple[str, ...], message: str
) -> None:
    tenant = make_tenant()
    assert message in limits("set", tenant, *arguments, code=2)
    assert set(limits("show", tenant).values()) == {(None, "none")}


def test_limit_setting_out_of_range_is_named(limits: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VECTORFORGE_LIMIT_TOKENS_PER_DAY", "0")
    assert "VECTORFORGE_LIMIT_TOKENS_PER_DAY" in limits("show", "a", code=2)
