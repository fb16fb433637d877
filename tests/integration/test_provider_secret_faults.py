"""Secrets Manager and SSM with faults: errors, continued service, and no key in any output."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import traceback
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.suites.llm import MESSAGES
from tests.support.aws.fake_aws_faults import AwsFailure, FaultyAws
from tests.support.http.live_api import LiveApi, add_documents, new_collection, settings_for
from tests.support.http.live_server import serve
from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer
from tests.support.vendors.fake_openai import FakeOpenAI
from vectorforge.api.app import create_app
from vectorforge.aws.secrets import StoredKeys
from vectorforge.bootstrap import Application
from vectorforge.config import AwsSettings, EmbeddingSettings, LLMSettings
from vectorforge.errors import (
    ConfigurationError,
    LLMAuthenticationError,
    SecretsUnavailableError,
    VectorForgeError,
)
from vectorforge.local.postgres import EmbeddedPostgres

OLD, NEW = "sk-old-canary-0123456789", "sk-new-canary-0123456789"
SETTING = "openai_api_key"
OUTAGE = AwsFailure(503, "InternalServiceError")
DENIED = AwsFailure(400, "AccessDeniedException", "User is not authorized")


@pytest.fixture
def secret_id(aws: FaultyAws) -> str:
    name = f"vectorforge/{uuid.uuid4().hex[:8]}"
    aws.put_secret(name, {SETTING: OLD, "embedding_api_key": OLD})
    return name


def keys(**settings: object) -> StoredKeys:
    return StoredKeys.from_settings(AwsSettings.model_validate(settings))


class TestColdStart:
    """A wrong setting is reported immediately, with a remedy; an outage is retried."""

    def failure(self, kind: type[VectorForgeError], **settings: object) -> str:
        with pytest.raises(kind) as caught:
            keys(**settings).find(SETTING)
        shown = "".join(traceback.format_exception(caught.value))
        assert "canary" not in shown
        assert "scripted" not in shown  # AWS's own text
        return caught.value.message

    def test_missing_secret_raises_configuration_error(self, aws: FaultyAws) -> None:
        message = self.failure(ConfigurationError, provider_secret_id="vectorforge/typo")
        assert message == (
            "Secret vectorforge/typo is not there. "
            "Check VECTORFORGE_PROVIDER_SECRET_ID, the account and the region."
        )

    def test_denied_access_raises_error_naming_the_permission(self, aws: FaultyAws, secret_id: str) -> None:
        aws.failure = DENIED
        message = self.failure(ConfigurationError, provider_secret_id=secret_id)
        assert message == (
            f"Secret {secret_id} may not be read. Allow secretsmanager:GetSecretValue on {secret_id}, "
            "and kms:Decrypt on its key if that is your own."
        )
        message = self.failure(ConfigurationError, provider_parameter_path="/prod/")
        assert message.startswith(
            "Parameter path /prod/ may not be read. Allow ssm:GetParametersByPath on parameter/prod"
        )

    @pytest.mark.parametrize("code", ["InvalidRequestException", "DecryptionFailure"])
    def test_unusable_secret_raises_configuration_error(
        self, aws: FaultyAws, secret_id: str, code: str
    ) -> None:
        aws.failure = AwsFailure(400, code)
        assert f"cannot be used ({code})" in self.failure(ConfigurationError, provider_secret_id=secret_id)

    def test_invalid_parameter_path_raises_error_naming_the_setting(self, aws: FaultyAws) -> None:
        aws.failure = AwsFailure(400, "ValidationException")  # moto would accept it
        message = self.failure(ConfigurationError, provider_parameter_path="prod")
        assert "Check VECTORFORGE_PROVIDER_PARAMETER_PATH" in message

    @pytest.mark.parametrize("content", ['{"openai_api_key": "canary', "canary", '["canary"]', "null"])
    def test_secret_without_json_object_is_rejected(
        self, aws: FaultyAws, secret_id: str, content: str
    ) -> None:
        aws.put_secret(secret_id, content)
        message = self.failure(ConfigurationError, provider_secret_id=secret_id)
        assert message.startswith(f"Secret {secret_id} must be a JSON object of settings")

    @pytest.mark.parametrize("failure", [OUTAGE, AwsFailure(400, "ThrottlingException")])
    def test_secrets_outage_raises_retryable_error(
        self, aws: FaultyAws, secret_id: str, failure: AwsFailure
    ) -> None:
        aws.failure = failure
        with pytest.raises(SecretsUnavailableError, match=rf"read now \({failure.code}\)") as caught:
            keys(provider_secret_id=secret_id).find(SETTING)
        assert caught.value.retryable
        assert aws.calls == ["GetSecretValue"] * 2

    def test_unreachable_endpoint_error_mentions_vpc_endpoint(
        self, aws: FaultyAws, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        message = self.failure(SecretsUnavailableError, provider_secret_id="s")
        assert "In a VPC, Secrets Manager needs an endpoint or a way out" in message

    def test_missing_aws_credentials_raise_configuration_error(
        self, aws: FaultyAws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
            monkeypatch.setenv(name, str(tmp_path / "nothing"))
        message = self.failure(ConfigurationError, provider_secret_id="s")
        assert "cannot be read (NoCredentialsError)" in message

    def test_missing_aws_region_raises_configuration_error(
        self, aws: FaultyAws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "nothing"))
        assert "(NoRegionError)" in self.failure(ConfigurationError, provider_secret_id="s")

    def test_missing_secret_prevents_application_build(self, aws: FaultyAws) -> None:
        config = settings_for("postgresql://x@127.0.0.1:1/x", aws=AwsSettings(provider_secret_id="typo"))
        with pytest.raises(ConfigurationError, match="Secret typo is not there"):
            Application.build(config)


async def build(secret_id: str, base_url: str, *, max_age_s: int = 300) -> Application:
    config = settings_for(
        "postgresql://x@127.0.0.1:1/x",
        llm=LLMSettings(openai_base_url=base_url, llm_max_retries=0),
        aws=AwsSettings(provider_secret_id=secret_id, secret_max_age_s=max_age_s),
    )
    return await asyncio.to_thread(Application.build, config)


# C25
@pytest.mark.parametrize("failure", [OUTAGE, DENIED])
async def test_secrets_outage_in_running_process_retains_last_keys(
    aws: FaultyAws, secret_id: str, failure: AwsFailure, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeOpenAI(api_key=OLD) as server:
        application = await build(secret_id, server.base_url, max_age_s=1)
        provider = application.llm_registry.get("openai")
        aws.failure = failure
        async with asyncio.timeout(20):
            while len(aws.calls) < 3:
                await provider.generate(MESSAGES)
                await asyncio.sleep(0.05)
        server.api_key = NEW  # and now that too
        with pytest.raises(LLMAuthenticationError):
            await provider.generate(MESSAGES)
        aws.failure = None
        aws.put_secret(secret_id, {SETTING: NEW})
        async with asyncio.timeout(20):
            while not await provider.validate_credentials():  # noqa: ASYNC110 - it depends on a key's age
                await asyncio.sleep(0.05)
        await application.close()
    warnings = [r.message for r in caplog.records if r.name == "vectorforge.aws.secrets"]
    assert warnings[0].startswith(f"Secret {secret_id} ")
    assert warnings[0].endswith("; going on with the last keys")


# Threats 18 and 19, C22
async def test_provider_keys_are_absent_from_logs_and_output(
    aws: FaultyAws, secret_id: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)  # boto3's bodies, and an HTTP client's logs
    aws.put_parameter(f"/{secret_id}/cohere_api_key", OLD)
    shown: list[str] = []
    async with FakeOpenAI(api_key="another") as server:
        config = settings_for(
            "postgresql://x@127.0.0.1:1/x",
            llm=LLMSettings(openai_base_url=server.base_url, cohere_base_url=server.base_url),
            aws=AwsSettings(provider_secret_id=secret_id, provider_parameter_path=f"/{secret_id}"),
        )
        application = await asyncio.to_thread(Application.build, config)
        for name in ("openai", "cohere"):
            provider = application.llm_registry.get(name)
            for key in (NEW, "{canary", None):  # rotated, malformed, down; the vendor quotes the rejected key
                if key is None:
                    aws.failure = OUTAGE
                elif name == "openai":
                    aws.put_secret(secret_id, {SETTING: key} if key == NEW else key)
                else:
                    aws.put_parameter(f"/{secret_id}/cohere_api_key", key)
                with pytest.raises(LLMAuthenticationError) as caught:
                    await provider.generate(MESSAGES)
                shown += traceback.format_exception(caught.value)
            aws.failure = None
            shown += [repr(provider), repr(vars(provider)), repr(vars(vars(provider)["_transport"]))]
        shown += [repr(application.llm_registry.infos()), repr(await application.health_checker.check())]
        await application.close()
    assert {key.removeprefix("Bearer ") for r in server.requests for key in [r.headers["Authorization"]]} == {
        OLD,
        NEW,
        "{canary",
    }
    assert "botocore" in caplog.text
    out, err = capfd.readouterr()
    assert "canary" not in caplog.text + out + err + "".join(shown)


# C25, fault 42: embeddings and answers, over HTTP
async def test_queries_during_secret_rotation_succeed(
    aws: FaultyAws, secret_id: str, postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> None:
    tenant = make_tenant()
    async with FakeOpenAI(api_key=OLD) as llm, FakeEmbeddingsServer(api_key=OLD, dimension=64) as embeddings:
        config = settings_for(
            postgres_server.app_url,
            [tenant],
            llm=LLMSettings(openai_base_url=llm.base_url),
            embedding=EmbeddingSettings(
                default_provider="http",
                embedding_base_url=embeddings.base_url,
                embedding_model="m",
                embedding_dimension=64,
            ),
            aws=AwsSettings(provider_secret_id=secret_id),
        )
        application = await asyncio.to_thread(Application.build, config)
        async with serve(create_app(application)) as url, LiveApi(url, application).client(tenant) as client:
            await add_documents(client, await new_collection(client), guide="The answer is 42.")

            async def ask(number: int) -> int:
                body = {"query": f"What is the answer to question {number}?"}
                return (await client.post("/v1/rag/query", json=body)).status_code

            assert await ask(0) == 200
            aws.put_secret(secret_id, {SETTING: NEW, "embedding_api_key": NEW})
            llm.api_key = embeddings.api_key = NEW
            assert await asyncio.gather(*(ask(number) for number in range(1, 21))) == [200] * 20
            assert aws.calls == ["GetSecretValue"] * 2


# C25
def test_doctor_reports_where_each_key_comes_from(aws: FaultyAws, secret_id: str, tmp_path: Path) -> None:
    aws.put_secret(secret_id, {SETTING: OLD, "anthropic_api_key": OLD})
    aws.put_parameter(f"/{secret_id}/cohere_api_key", OLD)
    environment = {
        **os.environ,
        "VECTORFORGE_PROVIDER_SECRET_ID": secret_id,
        "VECTORFORGE_PROVIDER_PARAMETER_PATH": f"/{secret_id}",
        "VECTORFORGE_ANTHROPIC_API_KEY": NEW,
    }

    def doctor(**more: str) -> tuple[dict[str, str], dict[str, str], str]:
        arguments = ["doctor", "--json", "--data-dir", str(tmp_path / "none")]
        command = [sys.executable, "-m", "vectorforge.cli", *arguments]
        done = subprocess.run(
            command, env={**environment, **more}, capture_output=True, text=True, check=False
        )
        checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
        return checks["keys"], checks.get("models", {}), done.stdout + done.stderr

    found, models, output = doctor()
    assert (found["status"], found["detail"]) == (
        "ok",
        "anthropic_api_key from environment, cohere_api_key from parameter, openai_api_key from secret",
    )
    assert models["detail"] == "credentials for openai, anthropic, cohere (not verified)"
    assert "canary" not in output
    found, models, output = doctor(VECTORFORGE_PROVIDER_SECRET_ID="typo")
    assert (found["status"], models) == ("fail", {})
    assert found["detail"].startswith("Secret typo is not there.")
