"""A data folder whose server runs for a whole module, and a handbook in it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from vectorforge.local.laptop import leased
from vectorforge.local.postgres import EmbeddedPostgres

HANDBOOK = """# Handbook

## Refunds

The finance team approves every refund above 500 euros within two working days.

## Holidays

Everybody has thirty days of paid holidays a year, and the office closes between Christmas and New Year.
"""


@pytest.fixture(scope="module")
def vectorforge(private_dir: Callable[[str], Path]) -> Iterator[CommandLine]:
    """Run commands against a running embedded server, as during ``vectorforge up``."""
    folder = private_dir("cli")
    (folder / "handbook.md").write_text(HANDBOOK)
    server = EmbeddedPostgres(folder / "data" / "postgres", settings={"fsync": "off"})
    (folder / "data").mkdir()
    (folder / "data").chmod(0o711)
    with leased(server):
        yield CommandLine(folder, folder / "data")
    server.stop(force=True)


@pytest.fixture(scope="module")
def handbook(vectorforge: CommandLine) -> CommandLine:
    """Ingest the handbook into a separate collection."""
    first = vectorforge.json("ingest", "handbook.md", "-c", "handbook", "-m", "team=hr")
    assert (first["succeeded"], first["failed"]) == (1, 0)
    assert first["chunks_added"] > 0
    return vectorforge
