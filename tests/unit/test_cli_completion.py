"""Completion of the command line in real shells."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vectorforge.cli.app import run

BIN = Path(sys.executable).parent
ENVIRONMENT = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "dumb"}


@pytest.fixture(scope="module")
def bash() -> Iterator[int]:
    """Return the terminal of an interactive bash that has sourced the script."""
    terminal, inner = pty.openpty()
    with subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=inner, stdout=inner, stderr=inner, env=ENVIRONMENT, start_new_session=True,
    ) as process:  # fmt: skip
        os.close(inner)
        os.write(terminal, b"source <(vectorforge completion bash); echo sour''ced\n")
        read_until(terminal, "sourced")
        yield terminal
        process.kill()
    os.close(terminal)


def read_until(terminal: int, text: str) -> str:
    """Return what the terminal shows until this text."""
    shown, end = "", time.monotonic() + 60
    while text not in shown:
        assert select.select([terminal], [], [], max(0, end - time.monotonic()))[0], shown
        shown += os.read(terminal, 4096).decode()
    return shown


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("vectorforge collections sho", "show "),
        ("vectorforge ask Why --collec", "--collection "),
        ("vectorforge search x --mode lex", "lexical "),
    ],
)
def test_bash_completes_commands_options_and_values(bash: int, typed: str, completed: str) -> None:
    os.write(bash, f"{typed}\t".encode())
    read_until(bash, f"{typed.rpartition(' ')[0]} {completed}")
    os.write(bash, b"\x15")  # Ctrl-U: the next test begins an empty line


@pytest.mark.parametrize(
    ("words", "completed"), [("vectorforge collec", "collections"), ("vectorforge completion fi", "fish")]
)
def test_command_and_argument_are_completed(
    words: str, completed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_VECTORFORGE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    with pytest.raises(SystemExit, match=r"^0$"):
        run([])
    assert capsys.readouterr().out.split() == [completed]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_is_valid_in_its_shell(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_VECTORFORGE_COMPLETE=complete_" + shell in script
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(script)
    subprocess.run([program, "-n", tmp_path / "script"], check=True)


def test_unknown_shell_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "csh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err
