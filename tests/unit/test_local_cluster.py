"""The embedded PostgreSQL's data directory."""

import os
import resource
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from vectorforge.errors import ConfigurationError, DatabaseUnavailableError
from vectorforge.local.cluster import initialize, is_new


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


def test_data_directory_of_another_user_is_reported() -> None:
    user = os.geteuid()
    with TemporaryDirectory() as folder:
        data = Path(folder) / "postgres"
        data.mkdir(mode=0o000)
        Path(folder).chmod(0o755)
        if user == 0:
            os.seteuid(65534)
        try:
            with pytest.raises(ConfigurationError, match="cannot be read by this user"):
                is_new(data)
        finally:
            os.seteuid(user)
