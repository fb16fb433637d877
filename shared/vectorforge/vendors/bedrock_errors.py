"""What an exception of a Bedrock call means, as an HTTP status or a kind of failure."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

Failure: TypeAlias = Literal["timeout", "unreachable", "broken", "unusable"]
"""No answer in time; no connection; a stream that ended within an event; an answer of another shape."""

_AUTHENTICATION = 401
_STATUSES = {
    "accessdeniedexception": _AUTHENTICATION,
    "expiredtoken": _AUTHENTICATION,
    "expiredtokenexception": _AUTHENTICATION,
    "incompletesignature": _AUTHENTICATION,
    "incompletesignatureexception": _AUTHENTICATION,
    "invalidclienttokenid": _AUTHENTICATION,
    "invalidsignatureexception": _AUTHENTICATION,
    "missingauthenticationtoken": _AUTHENTICATION,
    "missingauthenticationtokenexception": _AUTHENTICATION,
    "signaturedoesnotmatch": _AUTHENTICATION,
    "unrecognizedclientexception": _AUTHENTICATION,
    "validationexception": 400,
    "modeltimeoutexception": 408,
    "modelnotreadyexception": 429,
    "throttlingexception": 429,
    "internalserverexception": 500,
    "modelstreamerrorexception": 500,  # "Retry your request", says AWS of it
    "serviceunavailableexception": 503,
}
"""By error code in lower case. Errors of a stream come without a status, and AWS answers some refused
credentials with 400. Sources: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html
and https://docs.aws.amazon.com/bedrock/latest/APIReference/CommonErrors.html."""


def status_of(exc: Exception) -> tuple[int, Mapping[str, str]] | None:
    """The HTTP status that an exception stands for, and the answer's headers (names in lower case).

    401 for every way in which there are no, or no good, credentials; 400 for a request that the SDK did not
    even send. None: it stands for no status; see ``failure_of``.
    """
    from botocore import exceptions

    if isinstance(exc, exceptions.ClientError):  # those of a stream, too
        metadata = exc.response.get("ResponseMetadata", {})
        status = _STATUSES.get(error_code(exc).lower(), metadata.get("HTTPStatusCode", 500))
        return status, metadata.get("HTTPHeaders", {})
    without_credentials = (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.CredentialRetrievalError,
        exceptions.NoAuthTokenError,
        exceptions.SSOError,
        exceptions.TokenRetrievalError,
        exceptions.ProfileNotFound,
    )
    if isinstance(exc, without_credentials):
        return _AUTHENTICATION, {}
    return (400, {}) if isinstance(exc, exceptions.ParamValidationError) else None


def failure_of(exc: Exception) -> Failure:
    """What an exception that stands for no status means."""
    from botocore import exceptions
    from urllib3.exceptions import HTTPError, ReadTimeoutError

    if isinstance(exc, exceptions.ReadTimeoutError | exceptions.ConnectTimeoutError | ReadTimeoutError):
        return "timeout"
    if isinstance(exc, exceptions.HTTPClientError | exceptions.EndpointConnectionError):
        return "unreachable"
    if isinstance(exc, HTTPError | exceptions.IncompleteReadError | ConnectionError):
        return "broken"
    return "unusable"


def error_code(exc: Any) -> str:
    """AWS's code of a ``ClientError``, e.g. "ValidationException"; "" for other exceptions."""
    return str(getattr(exc, "response", {}).get("Error", {}).get("Code", ""))


def error_message(exc: Any) -> str:
    """AWS's text of a ``ClientError``; it may quote the request, so it is never shown."""
    return str(getattr(exc, "response", {}).get("Error", {}).get("Message", ""))
