"""boto3 clients: one per service, built on first use, with timeouts that fit inside a request.

Region, credentials and endpoints come from boto3's own chain; ``AWS_ENDPOINT_URL`` selects an emulator.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from vectorforge.errors import ConfigurationError


class AwsClients:
    """Clients of one process; thread-safe.

    Args:
        connect_timeout_s: Time limit of a connection attempt.
        read_timeout_s: Longest silence of the service.
        max_attempts: Attempts in total; botocore waits up to a second before the second one.
    """

    def __init__(
        self, *, connect_timeout_s: float = 1.0, read_timeout_s: float = 5.0, max_attempts: int = 2
    ) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._read_timeout_s = read_timeout_s
        self._max_attempts = max_attempts
        self._clients: dict[str, Any] = {}
        self._session: Any = None
        self._lock = threading.Lock()  # clients may be shared by threads, but not built by several at once

    def get(self, service: str) -> Any:
        """Return the client of a service, e.g. "sqs". The first call takes about 0.3 s to load boto3.

        Raises:
            ConfigurationError: There is no region, or the configuration of the AWS SDK is invalid.
        """
        with self._lock:
            if service not in self._clients:
                self._clients[service] = self._build(service)
            return self._clients[service]

    def warm(self, *services: str) -> None:
        """Build clients ahead, in the init phase of a function, so that no request waits for it.

        Raises:
            ConfigurationError: As ``get``.
        """
        for service in services:
            self.get(service)

    def close(self) -> None:
        """Close the connections of all clients; safe to call twice."""
        with self._lock:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    def disconnect(self) -> None:
        """Close the connections but not the clients: the next call reconnects."""
        with self._lock:
            clients = list(self._clients.values())
        for client in clients:
            client.close()  # botocore clears its pools and reconnects on demand

    def _build(self, service: str) -> Any:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        config = Config(
            connect_timeout=self._connect_timeout_s,
            read_timeout=self._read_timeout_s,
            retries={"mode": "standard", "total_max_attempts": self._max_attempts},
            tcp_keepalive=True,
            # What is signed for others is signed with SigV4, for the bucket's own host in its region. Else it
            # is for the global host, which redirects uploads to young buckets of other regions:
            # https://docs.aws.amazon.com/AmazonS3/latest/userguide/VirtualHosting.html#VirtualHostingBackwardsCompatibility
            signature_version="s3v4" if service == "s3" else None,
            s3={"addressing_style": "virtual", "us_east_1_regional_endpoint": "regional"},
        )
        try:
            if self._session is None:  # not boto3's default session, which other code shares
                self._session = boto3.session.Session()
            client = self._session.client(service, config=config)
            if service == "s3" and not _is_aws_host(client.meta.endpoint_url):
                client.close()
                by_path = config.merge(Config(s3={"addressing_style": "path"}))  # bucket.localhost is nowhere
                client = self._session.client(service, config=by_path)
        except (BotoCoreError, ValueError) as exc:  # ValueError: an endpoint that is no URL
            raise ConfigurationError(
                f"Cannot create an AWS client for {service} ({type(exc).__name__}); set AWS_DEFAULT_REGION."
            ) from exc
        return client


def _is_aws_host(endpoint_url: str) -> bool:
    """Return True for an endpoint of S3 in any partition, False for an emulator."""
    return (urlsplit(endpoint_url).hostname or "").startswith(("s3.", "s3-"))


def is_temporary(error: Any) -> bool:
    """Return True for a ``ClientError`` of botocore that may pass: throttling, or a failure of the server."""
    status: int = error.response["ResponseMetadata"]["HTTPStatusCode"]
    return status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR


_silent: ContextVar[bool] = ContextVar("a call whose log lines hold secrets", default=False)


@contextmanager
def suppress_logs(*loggers: str) -> Iterator[None]:
    """Suppress these loggers within the block, at every level; other threads and tasks are not affected.

    Args:
        loggers: Names, such as "botocore.parsers".
    """
    for name in loggers:
        logging.getLogger(name).addFilter(_passes)  # adding it again does nothing
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def _passes(record: logging.LogRecord) -> bool:
    return not _silent.get()
