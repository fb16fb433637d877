"""boto3 clients: one of each, only when needed, and only with a region."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from vectorforge.aws.clients import AwsClients
from vectorforge.errors import ConfigurationError


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def test_concurrent_get_returns_one_client_per_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    clients = AwsClients()
    clients.warm("sqs")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: clients.get("sqs"), range(32)))
    assert {id(client) for client in found} == {id(clients.get("sqs"))}
    assert clients.get("s3") is not clients.get("sqs")
    clients.close()
    clients.close()


def test_client_timeouts_and_attempts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:  # C01
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    clients = AwsClients(connect_timeout_s=0.5, read_timeout_s=2, max_attempts=1)
    config = clients.get("sqs").meta.config
    assert (config.connect_timeout, config.read_timeout) == (0.5, 2)
    assert config.retries["total_max_attempts"] == 1
    clients.close()


def test_missing_region_error_names_variable() -> None:
    with pytest.raises(ConfigurationError, match=r"sqs.*AWS_DEFAULT_REGION"):
        AwsClients().warm("sqs")


def test_invalid_endpoint_url_raises_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nowhere")
    with pytest.raises(ConfigurationError, match="ValueError"):
        AwsClients().get("sqs")


def test_queue_import_loads_no_aws_sdk() -> None:
    modules = "vectorforge.aws.query_log_queue, vectorforge.aws.handlers.query_log_writer"
    code = f"import sys, {modules}; print([m for m in ('boto3', 'botocore', 'psycopg') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"


@pytest.mark.parametrize(
    ("region", "endpoint", "host"),
    [
        ("eu-central-1", "", "https://uploads.s3.eu-central-1.amazonaws.com/"),
        ("us-east-1", "", "https://uploads.s3.us-east-1.amazonaws.com/"),
        ("cn-north-1", "", "https://uploads.s3.cn-north-1.amazonaws.com.cn/"),
        ("eu-central-1", "http://localhost:4566", "http://localhost:4566/uploads"),
        ("eu-central-1", "http://127.0.0.1:4566", "http://127.0.0.1:4566/uploads"),
        ("eu-central-1", "http://host.docker.internal:4566", "http://host.docker.internal:4566/uploads"),
    ],
)
def test_s3_client_signs_for_regional_bucket_host(
    monkeypatch: pytest.MonkeyPatch, region: str, endpoint: str, host: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", region)
    if endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    clients = AwsClients()
    form = clients.get("s3").generate_presigned_post("uploads", "a.txt")
    assert form["url"] == host
    assert form["fields"]["x-amz-algorithm"] == "AWS4-HMAC-SHA256"
    assert f"/{region}/s3/aws4_request" in form["fields"]["x-amz-credential"]
    clients.close()
