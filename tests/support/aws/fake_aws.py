"""AWS services as moto answers them, over HTTP: what boto3 sends goes through a real socket."""

import uuid
from functools import cached_property
from typing import Any, Self
from urllib.request import Request, urlopen

REGION = "eu-central-1"
"""Not boto3's or the emulator's default: a region that the code took from nowhere shows."""
_CREDENTIALS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}  # moto takes any


def aws_environment(endpoint: str) -> dict[str, str]:
    """Variables that lead boto3 to an address, in this process or another.

    Args:
        endpoint: Base URL of all services.
    """
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        **{name.upper(): value for name, value in _CREDENTIALS.items()},
        "AWS_EC2_METADATA_DISABLED": "true",  # else boto3 looks there when a test takes the keys away
    }


def aws_client(service: str, endpoint: str) -> Any:
    """A boto3 client of an address, whatever the environment says."""
    import boto3

    return boto3.session.Session(region_name=REGION, **_CREDENTIALS).client(service, endpoint_url=endpoint)


class FakeAws:
    """One moto server, empty at first; use it as a context manager.

    Servers of one process share what they hold, as moto keeps it in the process: a new one empties them all.
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
        """Variables that lead boto3 here, in this process or another."""
        return aws_environment(self.url)

    def reset(self) -> None:
        """Forget everything."""
        with urlopen(Request(f"{self.url}/moto-api/reset", method="POST")):  # noqa: S310 - our own server
            pass

    def client(self, service: str) -> Any:
        """The boto3 client of a service, e.g. "sqs"."""
        if service not in self._clients:
            self._clients[service] = aws_client(service, self.url)
        return self._clients[service]

    def create_bucket(self, name: str | None = None) -> str:
        """A new bucket; its name, which is a new one too if none is given."""
        name = name or f"test-{uuid.uuid4().hex[:12]}"
        location = {"LocationConstraint": REGION}
        self.client("s3").create_bucket(Bucket=name, CreateBucketConfiguration=location)
        return name
