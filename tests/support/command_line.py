"""The vectorforge command in one folder, against one data folder."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from vectorforge.cli.app import run
from vectorforge.local.laptop import leased
from vectorforge.local.postgres import EmbeddedPostgres

VECTORFORGE = Path(sys.executable).with_name("vectorforge")


@dataclass(frozen=True)
class Finished:
    """Output of a command, and its exit code."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class CommandLine:
    """Runs commands in one folder, against one data folder.

    Most run in this process, which saves the start of an interpreter; ``process`` starts a real one.
    """

    folder: Path
    data_dir: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further environment variables of each command."""

    @property
    def environment(self) -> dict[str, str]:
        """The environment of this process without its settings, with the data folder and ``settings``."""
        others = {name: value for name, value in os.environ.items() if not name.startswith("VECTORFORGE_")}
        return {**others, "VECTORFORGE_DATA_DIR": str(self.data_dir), **self.settings}

    def __call__(self, *arguments: str, stdin: str = "", code: int = 0, **variables: str) -> Finished:
        """Run a command in this process, with further environment variables."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, chdir(self.folder):
            for name in [name for name in os.environ if name.startswith("VECTORFORGE_")]:
                patch.delenv(name)
            for name, value in {**self.environment, **variables}.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", io.StringIO(stdin))
            with redirect_stdout(out), redirect_stderr(err):
                returned = run([*arguments])
        return _checked(Finished(returned, out.getvalue(), err.getvalue()), code)

    def process(self, *arguments: str, stdin: str = "", code: int = 0, **variables: str) -> Finished:
        """Run a command in a process of its own, with further environment variables."""
        done = subprocess.run(
            [VECTORFORGE, *arguments],
            cwd=self.folder, env={**self.environment, **variables}, input=stdin, capture_output=True,
            text=True, check=False, timeout=120,
        )  # fmt: skip
        return _checked(Finished(done.returncode, done.stdout, done.stderr), code)

    def json(self, *arguments: str, stdin: str = "", code: int = 0) -> Any:
        """Run a command in this process, and parse the JSON that it prints."""
        return json.loads(self(*arguments, "--json", stdin=stdin, code=code).stdout)


@contextmanager
def command_line(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[CommandLine]:
    """Return a command line over a running embedded server, as during ``vectorforge up``."""
    data_dir = folder / "data"
    data_dir.mkdir()
    data_dir.chmod(0o711)
    server = EmbeddedPostgres(data_dir / "postgres", settings={"fsync": "off"})
    with leased(server):
        yield CommandLine(folder, data_dir, settings or {})
    server.stop(force=True)


def _checked(finished: Finished, code: int) -> Finished:
    assert finished.code == code, finished.stderr
    assert "Traceback" not in finished.stderr
    assert "\x1b" not in finished.stdout + finished.stderr, "colors in a pipe"
    return finished
