"""AWS services emulated by moto over HTTP, so that boto3's requests use a real socket."""

import uuid
from functools import cached_property
from typing import Any, Self
from urllib.request import Request, urlopen

REGION = "eu-central-1"
"""Differs from the defaults of boto3 and the emulator, so that a region not taken from the settings shows."""
_CREDENTIALS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}  # moto takes any


def aws_environment(endpoint: str) -> dict[str, str]:
    """Environment variables that point boto3 to an address, in this process or another.

    Args:
        endpoint: Base URL of all services.
    """
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        **{name.upper(): value for name, value in _CREDENTIALS.items()},
        "AWS_EC2_METADATA_DISABLED": "true",  # otherwise boto3 looks there when a test removes the keys
    }


def aws_client(service: str, endpoint: str) -> Any:
    """Return a boto3 client of an address, regardless of the environment."""
    import boto3

    return boto3.session.Session(region_name=REGION, **_CREDENTIALS).client(service, endpoint_url=endpoint)


class FakeAws:
    """One moto server, empty at first; use it as a context manager.

    All servers of a process share their data, which moto stores in the process: a new server empties them
    all.
    """

    def __init__(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
        self._clients: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._server.start()
        self.reset()
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()
        self._server.stop()

    @cached_property
    def url(self) -> str:
        """Base URL of all services."""
        host, port = self._server.get_host_and_port()
        return f"http://{host}:{port}"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that point boto3 here, in this process or another."""
        return aws_environment(self.url)

    def reset(self) -> None:
        """Delete all data."""
        with urlopen(Request(f"{self.url}/moto-api/reset", method="POST")):  # noqa: S310 - our own server
            pass

    def client(self, service: str) -> Any:
        """The boto3 client of a service, e.g. "sqs"."""
        if service not in self._clients:
            self._clients[service] = aws_client(service, self.url)
        return self._clients[service]

    def create_bucket(self, name: str | None = None) -> str:
        """Create a bucket and return its name, which is generated if none is given."""
        name = name or f"test-{uuid.uuid4().hex[:12]}"
        location = {"LocationConstraint": REGION}
        self.client("s3").create_bucket(Bucket=name, CreateBucketConfiguration=location)
        return name
