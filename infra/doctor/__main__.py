"""Command line of ``infra.doctor``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.doctor.checks import run_checks
from infra.doctor.report import report
from infra.settings import STAGES


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks; return 0, 1 when one failed, 2 when the command line is wrong, 130 when interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.doctor",
        description="Check an AWS account and this machine before a deployment.",
    )
    parser.add_argument("--stage", default="dev", choices=list(STAGES), help="stage to deploy (%(default)s)")
    parser.add_argument("--region", help="default: AWS_REGION, AWS_DEFAULT_REGION or the profile's")
    parser.add_argument(
        "--assembly", type=Path, metavar="FOLDER", help="output of `make synth` (cdk.out of this checkout)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    try:
        passed = report(run_checks(options.stage, options.region, options.assembly), as_json=options.json)
    except KeyboardInterrupt:
        sys.stderr.write("error: Interrupted.\n")
        return 130
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
