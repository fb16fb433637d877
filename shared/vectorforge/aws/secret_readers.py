"""Reads of secrets and of parameter paths through Powertools, with our errors; tenants of gateway keys."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from vectorforge.aws.clients import AwsClients, suppress_logs
from vectorforge.errors import ConfigurationError, SecretsUnavailableError, VectorForgeError

_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_NOT_THERE = frozenset({"ResourceNotFoundException", "ParameterNotFound"})
_UNUSABLE = frozenset(
    {
        "InvalidRequestException",
        "InvalidParameterException",
        "ValidationException",
        "DecryptionFailure",
        "ParamValidationError",
    }
)
"""Deleted, misspelled or encrypted with a missing key: waiting does not help."""
_IDENTITY = frozenset(
    {
        "UnrecognizedClientException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "ExpiredTokenException",
        "NoCredentialsError",
        "PartialCredentialsError",
        "ProfileNotFound",
    }
)
"""The last three are botocore's own, before anything is sent."""

Reader = Callable[[], Mapping[str, Any]]


def secret_reader(
    clients: AwsClients,
    secret_id: str,
    *,
    setting: str = "VECTORFORGE_PROVIDER_SECRET_ID",
    content: str = 'settings, e.g. {"openai_api_key": "..."}',
) -> Reader:
    """Return a reader of the fields of a secret that is a JSON object; a call connects to AWS.

    Args:
        clients: Source of the client.
        secret_id: Name or ARN.
        setting: Variable that names the secret.
        content: Expected content, for the error.
    """

    def read() -> Mapping[str, Any]:
        from aws_lambda_powertools.utilities.parameters import SecretsProvider

        text: Any = SecretsProvider(boto3_client=clients.get("secretsmanager")).get(secret_id)
        return secret_fields(secret_id, text, content)

    return _guarded(
        read,
        setting=setting,
        place=f"Secret {secret_id}",
        permission=f"secretsmanager:GetSecretValue on {secret_id}",
        service="Secrets Manager",
    )


def parameter_reader(clients: AwsClients, path: str) -> Reader:
    """Return a reader of the parameters directly below a path, by the last part of their names."""
    folder = path.rstrip("/")

    def read() -> Mapping[str, Any]:
        from aws_lambda_powertools.utilities.parameters import SSMProvider

        return SSMProvider(boto3_client=clients.get("ssm")).get_multiple(folder, decrypt=True)

    return _guarded(
        read,
        setting="VECTORFORGE_PROVIDER_PARAMETER_PATH",
        place=f"Parameter path {path}",
        permission=f"ssm:GetParametersByPath on parameter{folder}",
        service="Systems Manager",
    )


def gateway_key_reader(secret_id: str) -> Reader:
    """Return a reader of key ids and their tenants that takes at most 3 s and leaves no connection."""
    # Together with the providers' keys less than the ten seconds of Lambda's init phase.
    clients = AwsClients(connect_timeout_s=1.0, read_timeout_s=2.0, max_attempts=1)
    read = secret_reader(
        clients,
        secret_id,
        setting="VECTORFORGE_GATEWAY_KEY_SECRET_ID",
        content='key ids and tenants, e.g. {"k3yidacm3e": "acme"}',
    )

    def read_and_disconnect() -> Mapping[str, Any]:
        try:
            return read()
        finally:
            clients.disconnect()  # a snapshot must not hold it

    return read_and_disconnect


def secret_fields(secret_id: str, text: str | bytes, content: str) -> Mapping[str, Any]:
    """Parse a secret as a JSON object. The parser's own error carries the text, so it is not chained.

    Raises:
        ConfigurationError: It is not a JSON object.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):  # not UTF-8 either
        fields = None
    if not isinstance(fields, dict):
        raise ConfigurationError(f"Secret {secret_id} must be a JSON object of {content}.")
    return fields


def _guarded(read: Reader, *, setting: str, place: str, permission: str, service: str) -> Reader:
    """Return the same reader without log lines at any level and with our errors."""

    def guarded() -> Mapping[str, Any]:
        from aws_lambda_powertools.utilities.parameters import GetParameterError
        from botocore.exceptions import BotoCoreError

        try:
            with suppress_logs("botocore.parsers"):  # which logs the bodies of all responses
                return read()
        except (GetParameterError, BotoCoreError) as exc:
            failure = exc.__context__ if isinstance(exc, GetParameterError) else exc
            error = _error(failure, setting=setting, place=place, permission=permission, service=service)
        raise error  # not from the failure: an answer that could not be parsed may be its text

    return guarded


def _error(
    failure: BaseException | None, *, setting: str, place: str, permission: str, service: str
) -> VectorForgeError:
    from botocore.exceptions import ClientError

    code = type(failure).__name__
    if isinstance(failure, ClientError):
        code = str(failure.response.get("Error", {}).get("Code", code))
    if code in _NOT_THERE:
        text = f"is not there. Check {setting}, the account and the region."
    elif code in _DENIED:
        text = f"may not be read. Allow {permission}, and kms:Decrypt on its key if that is your own."
    elif code in _UNUSABLE:
        text = f"cannot be used ({code}). Check {setting}, and that it is not being deleted."
    elif code in _IDENTITY:
        text = f"cannot be read ({code}). Check the credentials and the region of this process."
    else:
        return SecretsUnavailableError(
            f"{place} cannot be read now ({code}). In a VPC, {service} needs an endpoint or a way out."
        )
    return ConfigurationError(f"{place} {text}")
