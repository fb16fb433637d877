"""Points of rotation: changed secrets take effect in running functions, without a deployment."""

import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from functions.probe.handler import ProbedFunction
from infra.constructs.python_function import ALIAS
from infra.verification.account_points import migrated
from infra.verification.points import AwsPoint, Point, PointFailedError, PointSkippedError, require, wait_for
from infra.verification.service_points import deep_health
from infra.verification.stage import DeployedStage

NEW_KEY: Final = "VERIFY_NEW_KEY"
"""Variable with a second valid key of a vendor, as a field of the secret: {"openai_api_key": "sk-..."}."""
_MAX_AGE_S = 300
"""Default of ``VECTORFORGE_SECRET_MAX_AGE_S``."""
_READING_S = 90
"""Time beyond it for a process to start, and for CloudWatch to show a line."""


def _database_secret(stage: DeployedStage) -> str:
    """Rotate the master user's password, and have the migrate function log in.

    Its roles may have made PostgreSQL refuse passwords to the owner; then the function logs in with a token.
    """
    secrets = stage.aws("secretsmanager")
    name = f"/{stage.settings.prefix}/database/owner-secret"
    secret: str = stage.aws("ssm").get_parameter(Name=name)["Parameter"]["Value"]

    def current() -> str:
        versions = secrets.describe_secret(SecretId=secret)["VersionIdsToStages"]
        [version] = [version for version, labels in versions.items() if "AWSCURRENT" in labels]
        return str(version)

    before, version = current(), stage.published("migrate")
    secrets.rotate_secret(SecretId=secret)
    after = wait_for(
        lambda: found if (found := current()) != before else None, what="the rotated password", seconds=600
    )
    seen = migrated(stage)
    require(stage.published("migrate") == version, "a deployment took place meanwhile: repeat")
    return f"password {before[:8]} became {after[:8]}, version {version} of the function logged in: {seen}"


def _gateway_secret(stage: DeployedStage) -> str:
    """Add the id of a key that API Gateway does not have, and call the function as its holder."""
    if not stage.settings.has_gateway_keys:
        raise PointSkippedError("the stage has no keys of API Gateway")
    key_id = f"verify{uuid.uuid4().hex[:8]}"
    function = ProbedFunction(f"{stage.name('query')}:{ALIAS}", key_id, stage.aws("lambda"))

    def status() -> int:
        return function.request("GET", "/v1/collections", expected=(200, 401))[0]

    require(status() == 401, "a key id outside of the secret was accepted")
    version, began = stage.published("query"), time.monotonic()
    tenant = next(iter(stage.key_ids))
    with _changed(stage, f"{stage.settings.prefix}/gateway-keys", {key_id: tenant}):
        wait_for(
            lambda: True if status() == 200 else None,
            what="the key id's tenant",
            seconds=_max_age_s(stage) + _READING_S,
        )
    took_s = time.monotonic() - began
    require(stage.published("query") == version, "a deployment took place meanwhile: repeat")
    return f"version {version} of the function accepted a new key id after {took_s:.0f} s"


def _provider_secret(stage: DeployedStage) -> str:
    """Store another key of a vendor for some minutes, and find the line of a process that uses it."""
    if NEW_KEY not in os.environ:
        raise PointSkippedError(f'needs a second key of the vendor in {NEW_KEY}: {{"openai_api_key": "..."}}')
    fields = _new_key()
    [setting] = fields
    began_ms = int(time.time() * 1000)

    def used() -> bool | None:
        deep_health(stage)
        found = stage.aws("logs").filter_log_events(
            logGroupName=f"/aws/lambda/{stage.name('query')}",
            startTime=began_ms,
            filterPattern=f'"holds another {setting}"',
        )
        return True if found["events"] else None

    deep_health(stage)  # a process that starts later has the new key from the start, and prints no line
    with _changed(stage, stage.settings.provider_secret, fields):
        wait_for(used, what="the use of the new key", seconds=_max_age_s(stage) + _READING_S)
    return f"a running process took a new {setting}; the former one is stored again"


def _new_key() -> dict[str, str]:
    try:
        fields = json.loads(os.environ[NEW_KEY])
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or len(fields) != 1:
        raise PointFailedError(f"{NEW_KEY} must be a JSON object of one field")
    return fields


@contextmanager
def _changed(stage: DeployedStage, secret: str, fields: Mapping[str, str]) -> Iterator[None]:
    """Add fields to a secret, and store its former text again at the end."""
    secrets: Any = stage.aws("secretsmanager")
    text = secrets.get_secret_value(SecretId=secret)["SecretString"]
    secrets.put_secret_value(SecretId=secret, SecretString=json.dumps({**json.loads(text), **fields}))
    try:
        yield
    finally:
        secrets.put_secret_value(SecretId=secret, SecretString=text)


def _max_age_s(stage: DeployedStage) -> float:
    return float(stage.variables("query").get("VECTORFORGE_SECRET_MAX_AGE_S", _MAX_AGE_S))


ROTATION_POINTS: Final = (
    AwsPoint("database-secret", "a rotated database password takes effect in functions", _database_secret),
    Point("gateway-secret", "a changed secret of gateway keys takes effect likewise", _gateway_secret),
    AwsPoint("provider-secret", "a rotated key of a vendor takes effect likewise", _provider_secret),
)
