"""Points of a verification: what each shows, and its result."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, TypeVar

from functions.probe.handler import ProbeFailedError
from infra.deployment.cdk_command import DeploymentError
from infra.verification.stage import DeployedStage

Status: TypeAlias = Literal["passed", "failed", "skipped"]
T = TypeVar("T")


class PointFailedError(Exception):
    """The stage does not behave as documented; the text says how it behaves."""


class PointSkippedError(Exception):
    """The point cannot be shown in this stage; the text says why."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point of docs/results/unverified.md."""

    name: str
    """As in that document: ``verify: name``."""
    shows: str
    check: Callable[[DeployedStage], str]
    """Returns the evidence: what was seen, without secrets."""
    needs_aws: bool = False
    """True: skipped in LocalStack."""


AwsPoint = partial(Point, needs_aws=True)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a point."""

    point: Point
    status: Status
    evidence: str
    seconds: float


def run_point(point: Point, stage: DeployedStage) -> Outcome:
    """Check one point; raises nothing but an interrupt."""
    started = time.monotonic()
    status: Status = "passed"
    try:
        if point.needs_aws and stage.is_emulated:
            raise PointSkippedError("needs AWS")
        evidence = point.check(stage)
    except PointSkippedError as exc:
        status, evidence = "skipped", str(exc)
    except (PointFailedError, ProbeFailedError, DeploymentError) as exc:
        status, evidence = "failed", str(exc)
    except Exception as exc:  # noqa: BLE001 - the other points are checked all the same; texts may hold secrets
        status, evidence = "failed", f"the check ended with {_described(exc)}"
    return Outcome(point, status, evidence, time.monotonic() - started)


def _described(exc: Exception) -> str:
    """Return the class and AWS's code of an exception, whose text may hold what was signed."""
    response = getattr(exc, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    return f"{type(exc).__name__} ({code})" if code else type(exc).__name__


def require(condition: object, otherwise: str) -> None:
    """Fail the point unless a condition holds.

    Raises:
        PointFailedError: It does not; ``otherwise`` says what was seen instead.
    """
    if not condition:
        raise PointFailedError(otherwise)


def wait_for(look: Callable[[], T | None], *, what: str, seconds: float = 120.0) -> T:
    """Return the first result that is not None, looking every two seconds.

    Raises:
        PointFailedError: There was none in time.
    """
    until = time.monotonic() + seconds
    while (found := look()) is None:
        if time.monotonic() > until:
            raise PointFailedError(f"{what} did not come within {seconds:.0f} s")
        time.sleep(2)
    return found


def count(outcomes: Sequence[Outcome], status: Status) -> int:
    """Count the points that ended in this way."""
    return sum(outcome.status == status for outcome in outcomes)
