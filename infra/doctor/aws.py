"""Clients of AWS with short timeouts, and the meaning of their failures.

Messages of AWS may hold keys and what was signed with them, so none is shown.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from infra.doctor.report import Check

_CONNECT_TIMEOUT_S, _READ_TIMEOUT_S = 3, 10


class AwsClients:
    """Clients of boto3 for one region, one for each service; safe to use from several threads.

    Region, credentials and endpoints come from boto3's own chain.
    """

    def __init__(self, region: str) -> None:
        self._region = region
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()  # several threads may use a client, not build one

    def get(self, service: str) -> Any:
        """Return the client of a service, such as "sqs".

        Raises:
            botocore.exceptions.BotoCoreError: The configuration of the AWS SDK is unusable.
            ValueError: An endpoint is not a URL.
        """
        import boto3
        from botocore.config import Config

        config = Config(
            connect_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=_READ_TIMEOUT_S,
            retries={"mode": "standard", "total_max_attempts": 2},
        )
        with self._lock:
            if service not in self._clients:
                session = boto3.session.Session(region_name=self._region)
                self._clients[service] = session.client(service, config=config)
            return self._clients[service]

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            client.close()


@dataclass(frozen=True, slots=True)
class AwsFailure:
    """Meaning of a failed call."""

    code: str
    """AWS's error code, or the class of the SDK's exception."""
    identity: bool
    """True if the credentials are at fault, so that every other call fails too."""
    detail: str
    remedy: str


_MEANINGS = (
    # codes, credentials at fault, detail, remedy
    ("ExpiredToken ExpiredTokenException RequestExpired TokenRefreshRequired", True,
     "the session has expired", "Sign in again: `aws sso login`, or get new temporary keys."),
    ("SSOTokenLoadError TokenRetrievalError UnauthorizedSSOTokenError LoginRefreshRequired", True,
     "the SSO session has expired or never began", "Run `aws sso login`."),
    ("NoCredentialsError PartialCredentialsError CredentialRetrievalError", True,
     "credentials are missing or incomplete", "Run `aws configure sso`, or set AWS_PROFILE."),
    ("ProfileNotFound", True,
     "the profile does not exist", "Correct AWS_PROFILE; `aws configure list-profiles` lists them."),
    (("AuthFailure IncompleteSignature InvalidAccessKeyId InvalidClientTokenId InvalidSignatureException"
      " SignatureDoesNotMatch UnrecognizedClientException"), True,
     "AWS does not accept these keys here",
     "Check the keys, the clock of this machine, and whether the account has enabled the region."),
    ("AccessDenied AccessDeniedException AuthorizationError UnauthorizedOperation OptInRequired", False,
     "permission denied", "Allow {action}, or look in the console."),
    (("RequestLimitExceeded SlowDown Throttling ThrottlingException ThrottledException"
      " TooManyRequestsException"), False,
     "AWS is throttling these calls", "Retry in a minute."),
    ("ConnectTimeoutError EndpointConnectionError ReadTimeoutError ConnectionClosedError", False,
     "AWS did not answer in time", "Check the network, its proxy, and the region; then retry."),
)  # fmt: skip


def understand(failure: Exception, *, action: str) -> AwsFailure:
    """Explain a failure and how to resolve it.

    Args:
        failure: An exception of botocore, or the ``ValueError`` of ``AwsClients.get``.
        action: Permission that the call needs, such as "ec2:DescribeVpcs".
    """
    from botocore.exceptions import ClientError

    code = type(failure).__name__
    if isinstance(failure, ClientError):
        code = str(failure.response.get("Error", {}).get("Code", code)).removeprefix("Client.")
    for codes, identity, detail, remedy in _MEANINGS:
        if code in codes.split():
            return AwsFailure(code, identity, detail, remedy.format(action=action))
    return AwsFailure(code, False, "the call failed", f"Check whether {action} works with the AWS CLI.")


def guarded(name: str, action: str, look: Callable[[], list[Check]]) -> list[Check]:
    """Run checks that call AWS; return one that explains the failure when a call fails.

    Args:
        name: Name of the check.
        action: Permission that it needs.
        look: Runs it.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return look()
    except (BotoCoreError, ClientError, ValueError) as exc:
        failure = understand(exc, action=action)
        detail = f"not checked: {failure.detail} ({failure.code})"
        return [Check(name, "fail" if failure.identity else "warn", detail, failure.remedy)]
