"""A directory for data directories of embedded servers."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.postgres.embedded import kill_below


@pytest.fixture
def place(private_dir: Callable[[str], Path]) -> Iterator[Path]:
    """Return a directory for a data directory; servers in it are killed at the end."""
    directory = private_dir("own")
    yield directory
    kill_below(directory)
    shutil.rmtree(directory)
