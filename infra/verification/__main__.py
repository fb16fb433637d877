"""``make verify``: checks a deployed stage, and writes a dated report with what was seen.

    make verify STAGE=dev ARGS="--region eu-central-1"
    AWS_ENDPOINT_URL=http://127.0.0.1:4566 make verify     # of make deploy-local; points that need AWS say so

It creates collections named verification-... and deletes them. Exit codes: 0 no point failed; 1 a point
failed, or the stage is not deployed; 2 the command line is wrong.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from infra.bundling.bundle import ROOT
from infra.settings import STAGES
from infra.verification.account_points import ACCOUNT_POINTS
from infra.verification.backup_points import BACKUP_POINTS
from infra.verification.log_points import LOG_POINTS
from infra.verification.monitoring_points import MONITORING_POINTS
from infra.verification.points import Outcome, Point, count, run_point
from infra.verification.rotation_points import ROTATION_POINTS
from infra.verification.service_points import SERVICE_POINTS
from infra.verification.stage import DeployedStage
from infra.verification.stream_points import STREAM_POINTS

POINTS = (
    *SERVICE_POINTS, *STREAM_POINTS, *ACCOUNT_POINTS, *BACKUP_POINTS, *LOG_POINTS, *MONITORING_POINTS,
    *ROTATION_POINTS,
)  # fmt: skip
_COST = (
    "It sends about 500 requests, up to 20 queries and eleven short documents, at most six of the queries to "
    "your model, builds missing indexes, sets one alarm off for a minute, rotates the database's master "
    "password, and changes the secret of gateway keys for some minutes: less than $0.01 on AWS, $0.005 per "
    "GB of the logs of the last quarter of an hour, and some thousand tokens of the model. A load's report "
    "expires."
)
_LIST = ROOT / "docs" / "results" / "unverified.md"
_MARKS = {"passed": "ok", "failed": "FAILED", "skipped": "skipped"}


def verify(stage: DeployedStage, points: Sequence[Point]) -> list[Outcome]:
    """Check the points one after the other, and print each as it ends."""
    outcomes = []
    for number, point in enumerate(points, start=1):
        outcome = run_point(point, stage)
        outcomes.append(outcome)
        position = f"{number:>2}/{len(points)}"
        sys.stdout.write(f"{position} {_MARKS[outcome.status]:<8} {point.name:<16} {outcome.evidence}\n")
        sys.stdout.flush()
    return outcomes


def report(
    stage: DeployedStage, outcomes: Sequence[Outcome], left: Sequence[str], *, at: datetime
) -> Iterator[str]:
    """Yield the lines of the report in Markdown; it has no secret and no account.

    Args:
        stage: The stage.
        outcomes: Results of the points.
        left: ``rows_without_point``.
        at: Time of the verification.
    """
    where = "LocalStack" if stage.is_emulated else f"AWS, {stage.region}"
    yield f"# Verification of {stage.settings.stage}, {at:%Y-%m-%d %H:%M} UTC"
    yield ""
    yield f"Commit {_commit()} in {where}: {_summary(outcomes)}. A skipped point is not verified."
    yield ""
    yield "| point | shows | result | seen | s |"
    yield "|---|---|---|---|---|"
    for outcome in outcomes:
        seen = outcome.evidence.replace("|", "\\|").replace("\n", " ")
        point = outcome.point
        yield f"| {point.name} | {point.shows} | {outcome.status} | {seen} | {outcome.seconds:.1f} |"
    yield from ("", "## For a person", "", "Rows of docs/results/unverified.md that no point checks:", "")
    yield from ("| row | verification |", "|---|---|")
    yield from left


def rows_without_point(text: str) -> Iterator[str]:
    """Yield the rows about AWS that no point checks, with links as of the checkout's root."""
    for line in text.partition("## On AWS")[2].splitlines():
        if line.startswith("| ") and not line.startswith("| point ") and "(`make verify`" not in line:
            yield line.replace("](../", "](docs/")


def _summary(outcomes: Sequence[Outcome]) -> str:
    counted = [f"{count(outcomes, status)} {status}" for status in ("passed", "failed", "skipped")]
    return ", ".join(counted)


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    return done.stdout.strip() or "unknown"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m infra.verification",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--stage", default="dev", choices=list(STAGES), help="default: %(default)s")
    parser.add_argument("--region", help="default: AWS_REGION or AWS_DEFAULT_REGION")
    parser.add_argument("--only", nargs="+", metavar="POINT", choices=[point.name for point in POINTS])
    parser.add_argument("--list", action="store_true", help="list the points, and check nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask before the first request")
    parser.add_argument("--report", type=Path, help="default: verification-STAGE-DATE.md in this folder")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Verify as the command line says and return the exit code."""
    options = _parser().parse_args(arguments)
    points = [point for point in POINTS if options.only is None or point.name in options.only]
    if options.list:
        sys.stdout.writelines(f"{point.name:<16} {point.shows}\n" for point in points)
        return 0
    region = options.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None:
        sys.stderr.write("error: There is no region: use --region, or set AWS_REGION.\n")
        return 2
    sys.stdout.write(f"{_COST}\n")
    if not options.yes and not _agreed():
        sys.stderr.write("error: Nothing was verified; without a terminal use --yes.\n")
        return 2
    now = datetime.now(UTC)
    stage = DeployedStage(STAGES[options.stage], region)
    try:
        outcomes = verify(stage, points)
        left = list(rows_without_point(_LIST.read_text(encoding="utf-8")))
        lines = list(report(stage, outcomes, left, at=now))
    finally:
        stage.close()
    file = options.report or Path(f"verification-{options.stage}-{now:%Y-%m-%d}.md")
    file.write_text("\n".join([*lines, ""]), encoding="utf-8")
    sys.stdout.write(f"{_summary(outcomes)}, {len(left)} rows for a person; the report is {file}\n")
    return int(count(outcomes, "failed") > 0)


def _agreed() -> bool:
    if not sys.stdin.isatty():
        return False
    sys.stdout.write("Continue? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


if __name__ == "__main__":
    sys.exit(main())
