"""Command line of ``infra.bundling``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.bundling.bundle import BUDGET_BYTES, PLATFORM, PYTHON, SDK_BYTES, BundlingError, make_bundle
from infra.bundling.database_certificates import DatabaseCertificateError
from infra.bundling.token_tables import TokenTableError


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a bundle as the command line says; 0, or 1 with the reason on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.bundling",
        description="Make the bundle of one function.",
    )
    parser.add_argument("function", choices=BUDGET_BYTES)
    parser.add_argument("--output", type=Path, required=True, help="folder to fill; empty or not there yet")
    parser.add_argument("--python-version", default=PYTHON, help="of the Lambda runtime (%(default)s)")
    parser.add_argument("--platform", default=PLATFORM, help="as uv names it (%(default)s)")
    parser.add_argument("--sdk", action="append", default=[], choices=SDK_BYTES, help="add a vendor's SDK")
    chosen = parser.parse_args(arguments)
    try:
        bundle = make_bundle(
            chosen.function,
            chosen.output.absolute(),
            python_version=chosen.python_version,
            platform=chosen.platform,
            sdks=tuple(chosen.sdk),
        )
    except (BundlingError, DatabaseCertificateError, TokenTableError) as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    sys.stdout.write(f"{bundle}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
