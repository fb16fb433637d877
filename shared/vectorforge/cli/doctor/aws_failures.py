"""What a failed call of AWS means for whoever is about to deploy.

AWS's own texts may hold keys and what was signed with them, so none is shown.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AwsFailure:
    """Why a call failed."""

    code: str
    """AWS's error code, or the name of the SDK's exception."""
    identity: bool
    """Whether the credentials themselves are at fault, so that every other call fails too."""
    detail: str
    remedy: str


@dataclass(frozen=True, slots=True)
class _Meaning:
    codes: str
    """Separated by blanks."""
    identity: bool
    detail: str
    remedy: str


_MEANINGS = (
    _Meaning(
        "ExpiredToken ExpiredTokenException RequestExpired TokenRefreshRequired",
        identity=True,
        detail="the session has expired",
        remedy="Sign in again: `aws sso login`, or get new temporary keys.",
    ),
    _Meaning(
        "SSOTokenLoadError TokenRetrievalError UnauthorizedSSOTokenError LoginRefreshRequired",
        identity=True,
        detail="the SSO session has expired or never began",
        remedy="Run `aws sso login`.",
    ),
    _Meaning(
        "NoCredentialsError PartialCredentialsError CredentialRetrievalError",
        identity=True,
        detail="there are none, or only a part",
        remedy="Run `aws configure sso`, or set AWS_PROFILE.",
    ),
    _Meaning(
        "ProfileNotFound",
        identity=True,
        detail="there is no such profile",
        remedy="Correct AWS_PROFILE; `aws configure list-profiles` lists them.",
    ),
    _Meaning(
        "AuthFailure IncompleteSignature InvalidAccessKeyId InvalidClientTokenId InvalidSignatureException "
        "SignatureDoesNotMatch UnrecognizedClientException",
        identity=True,
        detail="AWS does not know these keys here",
        remedy="Check the keys, the clock of this machine, and whether the account has enabled the region.",
    ),
    _Meaning(
        "AccessDenied AccessDeniedException AuthorizationError UnauthorizedOperation OptInRequired",
        identity=False,
        detail="not allowed to look",
        remedy="Allow {action}, or look in the console.",
    ),
    _Meaning(
        "RequestLimitExceeded SlowDown Throttling ThrottlingException ThrottledException "
        "TooManyRequestsException",
        identity=False,
        detail="AWS is throttling these calls",
        remedy="Run it again in a minute.",
    ),
    _Meaning(
        "ConnectTimeoutError EndpointConnectionError ReadTimeoutError ConnectionClosedError",
        identity=False,
        detail="AWS did not answer in time",
        remedy="Check the network, its proxy, and the region; then run it again.",
    ),
)


def understand(failure: Exception, *, action: str) -> AwsFailure:
    """What happened, and what to do.

    Args:
        failure: Of botocore; or a ``ConfigurationError`` of ``AwsClients``.
        action: The permission that the call needs, e.g. "ec2:DescribeVpcs".
    """
    from botocore.exceptions import ClientError

    cause = failure.__cause__ or failure
    code = type(cause).__name__
    if isinstance(cause, ClientError):
        code = str(cause.response.get("Error", {}).get("Code", code)).removeprefix("Client.")
    for meaning in _MEANINGS:
        if code in meaning.codes.split():
            remedy = meaning.remedy.format(action=action)
            return AwsFailure(code, meaning.identity, meaning.detail, remedy)
    return AwsFailure(code, False, "the call failed", f"See whether {action} works with the AWS CLI.")
