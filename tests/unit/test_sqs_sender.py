"""Messages sent to SQS without boto3: signed as by boto3, and sent again after a broken connection."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support.aws.fake_aws import aws_environment
from vectorforge.aws.sqs import AwsKeys, SqsSender
from vectorforge.vendors.response import VendorConnectionError, VendorStatusError

KEYS = AwsKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "session/token==", "eu-central-1")
QUEUE_URL = "https://sqs.eu-central-1.amazonaws.com/123456789012/query-log"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
REFUSAL = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize("token", ["session/token==", None])
@pytest.mark.parametrize("host", ["sqs.eu-central-1.amazonaws.com", "127.0.0.1:4566"])
def test_signature_equals_that_of_boto3(host: str, token: str | None) -> None:
    keys = AwsKeys(KEYS.key_id, KEYS.secret, token, KEYS.region)
    body = json.dumps({"MessageBody": "ü\n " * 100}).encode()
    named = {"content-type": "application/x-amz-json-1.0", "x-amz-target": "AmazonSQS.SendMessage"}
    headers = keys.signed(host, named, body)

    signer = SigV4Auth(Credentials(keys.key_id, keys.secret, token), "sqs", keys.region)
    sent = {name: value for name, value in headers.items() if name != "Authorization"}
    request = AWSRequest("POST", f"https://{host}/", headers=sent, data=body)
    request.context["timestamp"] = headers["x-amz-date"]
    text = signer.string_to_sign(request, signer.canonical_request(request))
    assert headers["Authorization"].rpartition("=")[2] == signer.signature(text, request)
    signed_names = signer.signed_headers(signer.headers_to_sign(request))
    assert f"Credential={signer.scope(request)}, SignedHeaders={signed_names}," in headers["Authorization"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_ACCESS_KEY_ID", ""),
        ("AWS_SECRET_ACCESS_KEY", ""),
        ("AWS_DEFAULT_REGION", ""),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials"),
        ("AWS_CA_BUNDLE", "/etc/company.pem"),
        ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true"),
        ("AWS_USE_FIPS_ENDPOINT", "true"),
    ],
)
def test_keys_where_boto3_is_needed_are_none(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for other, setting in aws_environment("http://127.0.0.1:1").items():
        monkeypatch.setenv(other, setting)
    for other in ("AWS_REGION", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(other, raising=False)
    assert AwsKeys.from_environment() is not None
    monkeypatch.setenv(name, value)
    assert AwsKeys.from_environment() is None


def test_keys_in_repr_hide_secret_and_token() -> None:
    assert KEYS.secret not in repr(KEYS)
    assert "session/token" not in repr(KEYS)


@asynccontextmanager
async def sqs(monkeypatch: pytest.MonkeyPatch, answer: Callable[[int], bytes]) -> AsyncIterator[list[bytes]]:
    """Serve requests, each with the answer for its number; empty disconnects. Yield the bodies."""
    bodies: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with_body = await reader.readuntil(b"\r\n\r\n")
        length = int(with_body.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        bodies.append(await reader.readexactly(length))
        writer.write(answer(len(bodies)))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        yield bodies


async def test_broken_connection_sends_message_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sqs(monkeypatch, lambda number: b"" if number == 1 else ANSWER) as bodies:
        sender = SqsSender(KEYS, QUEUE_URL)
        await sender.send("one")
        await sender.aclose()
    assert [json.loads(body) for body in bodies] == [{"QueueUrl": QUEUE_URL, "MessageBody": "one"}] * 2


async def test_connection_that_breaks_twice_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sqs(monkeypatch, lambda _: b"") as bodies:
        sender = SqsSender(KEYS, QUEUE_URL)
        with pytest.raises(VendorConnectionError):
            await sender.send("one")
        await sender.aclose()
    assert len(bodies) == 2


async def test_rejected_message_raises_status(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sqs(monkeypatch, lambda _: REFUSAL) as bodies:
        sender = SqsSender(KEYS, QUEUE_URL)
        with pytest.raises(VendorStatusError) as caught:
            await sender.send("one")
        await sender.aclose()
    assert (caught.value.status, len(bodies)) == (403, 1)
