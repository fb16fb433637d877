"""IAM tokens: as boto3's, with the current credentials, for verified servers only."""

import logging
import subprocess
import sys
from pathlib import Path

import boto3
import pytest

from tests.support.aws.credentials_endpoint import CredentialsEndpoint
from tests.support.aws.iam_token import AwsKeys, IamToken
from vectorforge.aws.database_login import IamDatabaseLogin, database_password
from vectorforge.config import DatabaseSettings
from vectorforge.db.connection import Database
from vectorforge.errors import ConfigurationError, DatabaseUnavailableError

HOST = "vectorforge.proxy-abcdefghijkl.eu-central-1.rds.amazonaws.com"
USER = "vectorforge_app"
SECRET_KEY, SESSION = "canary-secret/key+", "canary-session/token+=="


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Set the environment of a Lambda function only."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION)


def token(login: IamDatabaseLogin, *, host: str = HOST, port: int = 5432, user: str = USER) -> str:
    return login(host, port, user).get_secret_value()


@pytest.mark.parametrize("user", [USER, "name with/odd+signs@ü"])
def test_token_equals_boto3_token(user: str) -> None:
    login, client = IamDatabaseLogin(), boto3.Session().client("rds", region_name="eu-central-1")
    for _ in range(5):
        before, theirs, after = (
            token(login, user=user),
            client.generate_db_auth_token(HOST, 5432, user),
            token(login, user=user),
        )
        if before == after:  # within one second, its resolution
            break
    assert before == after == theirs


def test_token_is_valid_for_rds_address_user_and_key() -> None:
    made = IamToken.of(token(IamDatabaseLogin(), port=6432))
    arguments = {"address": f"{HOST}:6432", "user": USER, "region": "eu-central-1"}
    keys = {"AKIAEXAMPLE": AwsKeys(SECRET_KEY, SESSION)}
    assert made.fault(**arguments, keys=keys) is None
    assert made.fault(**{**arguments, "user": "postgres"}, keys=keys) == "signed for something else"
    other = {"AKIAEXAMPLE": AwsKeys("another", SESSION)}
    assert made.fault(**arguments, keys=other) == "signed wrongly"


def test_token_uses_current_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    login = IamDatabaseLogin()
    login.preload()
    for key in ("AKIAFIRST", "AKIASECOND"):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        assert IamToken.of(token(login)).access_key == key


# A snapshot may be restored at any time: earlier signatures and secrets are useless then.
def test_preload_fetches_no_credentials_and_token_caches_none(monkeypatch: pytest.MonkeyPatch) -> None:
    login = IamDatabaseLogin()
    with CredentialsEndpoint() as endpoint:
        for name, value in endpoint.environment.items():
            monkeypatch.setenv(name, value)
        login.preload()
        Database(f"postgresql://{USER}@{HOST}/db?sslmode=verify-full", password=login).preload()
        assert endpoint.keys == {}
        used = [IamToken.of(token(login)).access_key for _ in range(3)]
    assert used == ["AKIA0", "AKIA1", "AKIA2"] == list(endpoint.keys)


def test_unreachable_credentials_raise_database_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/")
    with pytest.raises(DatabaseUnavailableError, match="cannot be read now"):
        token(IamDatabaseLogin())


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (("AWS_REGION",), "AWS_REGION"),
        (("AWS_SECRET_ACCESS_KEY",), "PartialCredentialsError"),
        (("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "no AWS credentials"),
    ],
)
def test_missing_setting_error_names_it(
    missing: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in missing:
        monkeypatch.delenv(name)
    with pytest.raises(ConfigurationError, match=message) as caught:
        token(IamDatabaseLogin())
    assert "canary" not in str(caught.value)


def test_region_falls_back_to_boto3_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "ap-south-1")
    assert "%2Fap-south-1%2Frds-db%2F" in token(IamDatabaseLogin())


def test_log_lines_hold_no_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made = IamToken.of(token(IamDatabaseLogin()))
    assert made.query["X-Amz-Signature"] not in caplog.text
    assert "canary" not in caplog.text


def test_token_is_signed_without_loading_boto3() -> None:
    code = (
        "import sys; from vectorforge.aws.database_login import IamDatabaseLogin as Login;"
        "assert 'botocore' not in sys.modules;"
        f"Login()({HOST!r}, 5432, {USER!r}); print('boto3' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"postgresql://{USER}@{HOST}/db", "sslmode=verify-full"),
        (f"postgresql://{USER}@{HOST}/db?sslmode=verify-ca", "sslmode=verify-full"),
        (f"postgresql://{USER}@{HOST}/db?sslmode=require", "sslmode=verify-full"),
        (f"postgresql://{USER}:canary@{HOST}/db?sslmode=verify-full", "no password"),
        (f"postgresql://{HOST}/db?sslmode=verify-full", "the role"),
        (f"postgresql://{USER}@/db?sslmode=verify-full", "one host"),
        (f"postgresql://{USER}@{HOST},other/db?sslmode=verify-full", "one host"),
        (f"postgresql://{USER}@/db?host=/tmp&sslmode=verify-full", "one host"),
    ],
)
async def test_token_without_verified_tls_is_rejected(url: str, message: str) -> None:
    database = Database(url, password=IamDatabaseLogin())
    with pytest.raises(ConfigurationError, match=message):
        database.preload()
    with pytest.raises(ConfigurationError, match=message) as caught:
        await database.open()
    assert "VECTORFORGE_DATABASE_AUTH" in str(caught.value)
    assert "canary" not in str(caught.value)


def test_database_auth_setting_selects_password_source() -> None:
    assert database_password(DatabaseSettings()) is None
    assert isinstance(database_password(DatabaseSettings(database_auth="iam")), IamDatabaseLogin)
