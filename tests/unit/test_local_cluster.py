"""The embedded PostgreSQL's data directory."""

import resource
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from vectorforge.errors import DatabaseUnavailableError
from vectorforge.local.cluster import initialize


def test_failed_initialization_reports_the_reason() -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # for the account that runs PostgreSQL if this one is root
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        try:
            with pytest.raises(DatabaseUnavailableError, match=r"could not create .*: .*File too large"):
                initialize(Path(folder) / "data", "owner")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
