"""Send messages to SQS over the vendors' connections, without boto3.

A client of boto3 takes a sixth of the query function's start to build, and its calls a quarter of the CPU of
a query there (docs/decisions/aws.md). Signature Version 4:
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import hashlib
import hmac
import os
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Self
from urllib.parse import urlsplit

import orjson

from vectorforge.vendors.response import VendorConnectionError

_CONNECT_TIMEOUT_S = 1.0
_NEEDS_BOTO3 = (
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CA_BUNDLE",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "AWS_USE_FIPS_ENDPOINT",
)
"""Settings of the AWS SDK that only boto3 follows; the first one is set with SnapStart, whose keys expire."""


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """Credentials and region of a process."""

    key_id: str
    secret: str = field(repr=False)
    token: str | None = field(repr=False)
    region: str

    @classmethod
    def from_environment(cls) -> Self | None:
        """Return the variables that Lambda sets; None where boto3 has to find credentials or settings."""
        read = os.environ.get
        key_id, secret = read("AWS_ACCESS_KEY_ID"), read("AWS_SECRET_ACCESS_KEY")
        region = read("AWS_DEFAULT_REGION") or read("AWS_REGION")
        if not (key_id and secret and region) or any(read(name) for name in _NEEDS_BOTO3):
            return None
        return cls(key_id, secret, read("AWS_SESSION_TOKEN") or None, region)

    def signed(self, host: str, headers: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Return the headers of a POST to SQS's ``/`` with its signature.

        ``host`` has the port if that is not the scheme's, and the names of ``headers`` are in lower case.
        """
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{now[:8]}/{self.region}/sqs/aws4_request"
        sent = {**headers, "x-amz-date": now}
        if self.token is not None:
            sent["x-amz-security-token"] = self.token
        to_sign = sorted({**sent, "host": host}.items())
        names = ";".join(name for name, _ in to_sign)
        lines = "".join(f"{name}:{value}\n" for name, value in to_sign)
        request = f"POST\n/\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        key = f"AWS4{self.secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        credential = f"AWS4-HMAC-SHA256 Credential={self.key_id}/{scope}"
        return {**sent, "Authorization": f"{credential}, SignedHeaders={names}, Signature={signature}"}


class SqsSender:
    """Sends messages to one queue. Close it in each event loop that has used it."""

    def __init__(self, keys: AwsKeys, queue_url: str) -> None:
        self._keys = keys
        self._queue_url = queue_url
        endpoint = os.environ.get("AWS_ENDPOINT_URL_SQS") or os.environ.get("AWS_ENDPOINT_URL") or queue_url
        parts = urlsplit(endpoint)
        self._host = parts.netloc
        self._url = f"{parts.scheme}://{parts.netloc}/"

    def warm(self) -> None:
        """Import the HTTP client; connects to nothing."""
        from vectorforge.vendors import session  # noqa: F401 - for its import

    async def send(self, message: str) -> None:
        """Send a message; twice if the connection breaks, so it may arrive twice.

        Raises:
            VendorConnectionError: SQS cannot be reached.
            VendorTimeoutError: SQS did not accept the connection in time.
            VendorStatusError: SQS rejected the message.
            ConnectionError: The connection broke within the response.
        """
        from vectorforge.vendors.session import session_for

        session = session_for(self)
        body = orjson.dumps({"QueueUrl": self._queue_url, "MessageBody": message})
        named = {"content-type": "application/x-amz-json-1.0", "x-amz-target": "AmazonSQS.SendMessage"}
        headers = self._keys.signed(self._host, named, body)
        try:
            response = await session.send("POST", self._url, body, headers, _CONNECT_TIMEOUT_S)
        except VendorConnectionError:  # e.g. one that SQS closed while the function was frozen
            response = await session.send("POST", self._url, body, headers, _CONNECT_TIMEOUT_S)
        async with aclosing(response):
            await response.read()

    async def aclose(self) -> None:
        """Release the running loop's connections; the next message reconnects."""
        from vectorforge.vendors.session import give_back

        await give_back(self)
