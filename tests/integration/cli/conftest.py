"""A data folder whose server runs for a whole module, and a handbook in it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, command_line

HANDBOOK = """# Handbook

## Refunds

The finance team approves every refund above 500 euros within two working days.

## Holidays

Everybody has thirty days of paid holidays a year, and the office closes between Christmas and New Year.
"""


@pytest.fixture(scope="module")
def vectorforge(private_dir: Callable[[str], Path]) -> Iterator[CommandLine]:
    """Run commands in a folder with a handbook."""
    folder = private_dir("cli")
    (folder / "handbook.md").write_text(HANDBOOK)
    with command_line(folder) as commands:
        yield commands


@pytest.fixture(scope="module")
def handbook(vectorforge: CommandLine) -> CommandLine:
    """Ingest the handbook into a separate collection."""
    first = vectorforge.json("ingest", "handbook.md", "-c", "handbook", "-m", "team=hr")
    assert (first["succeeded"], first["failed"]) == (1, 0)
    assert first["chunks_added"] > 0
    return vectorforge
