"""Output, errors, help and exit codes of the command line, without a database."""

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from vectorforge import errors
from vectorforge.cli.app import run
from vectorforge.cli.doctor.command import run_checks
from vectorforge.cli.terminal import ExitCode, Terminal, command, exit_code_for, printable

VECTORFORGE = Path(sys.executable).with_name("vectorforge")
SINGLE = ("up", "ingest", "ask", "search", "doctor", "migrate")
IN_GROUPS = [
    ["collections", "list"],
    ["collections", "create"],
    ["collections", "show"],
    ["collections", "delete"],
    ["documents", "list"],
    ["documents", "delete"],
]

ErrorType = type[errors.VectorForgeError]


def all_errors(root: ErrorType = errors.VectorForgeError) -> list[ErrorType]:
    return [root, *(kind for child in root.__subclasses__() for kind in all_errors(child))]


@pytest.mark.parametrize(
    ("encoding", "text"), [("ascii", "K?ln ? B"), ("latin-1", "Köln ? B"), ("utf-8", "Köln › B")]
)
def test_output_in_another_locale_replaces_what_it_does_not_have(
    encoding: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    terminal = Terminal()
    terminal.line("Köln › B")
    terminal.json({"source": "Köln › B"})
    shown, document = written.getvalue().decode(encoding).splitlines()
    assert (shown, json.loads(document)) == (text, {"source": "Köln › B"})


def test_suggested_command_is_followed_by_no_second_mark(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["askk"]) == ExitCode.USAGE
    assert "Did you mean 'ask'? See `vectorforge --help`." in capsys.readouterr().err


class TestExitCodes:
    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (errors.InvalidInputError("x"), 2),
            (errors.FilterError("x"), 2),
            (errors.ConfigurationError("x"), 2),
            (errors.NotFoundError("x"), 2),
            (errors.MigrationError("x"), 2),
            (errors.UnsafeRoleError("x"), 2),
            (errors.DatabaseUnavailableError("x"), 3),
            (errors.EmbeddingTimeoutError("x"), 3),
            (errors.LLMAuthenticationError("x"), 3),
            (errors.DeadlineExceededError("x"), 3),
            (errors.SecretsUnavailableError("x"), 3),
        ],
    )
    def test_exit_code_of_error_tells_retryable_from_permanent(
        self, error: errors.VectorForgeError, code: int
    ) -> None:
        assert exit_code_for(error) == code

    def test_exit_code_of_every_error_is_a_failure(self) -> None:
        for kind in all_errors():
            error = kind.__new__(kind)
            assert exit_code_for(error) in (ExitCode.USAGE, ExitCode.UNAVAILABLE), kind

    def test_exit_codes_are_listed_in_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        run(["--help"])
        shown = " ".join(capsys.readouterr().out.split())
        for piece in ("0 done", "1 done, but", "2 the command", "3 the data", "4 a bug", "130 interrupted"):
            assert piece in shown


class TestErrors:
    def test_error_prints_one_line_on_stderr(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(typer.Exit) as exit_, command(json_output=False, debug=False):
            raise errors.DatabaseUnavailableError("The database\nis gone.")
        out, err = capsys.readouterr()
        assert exit_.value.exit_code == 3
        assert out == ""
        assert err == "error: The database is gone.\n"

    def test_error_with_json_prints_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(typer.Exit), command(json_output=True, debug=False):
            raise errors.NotFoundError("Nothing here.")
        out, err = capsys.readouterr()
        assert out == ""
        assert json.loads(err) == {"error": {"code": "not_found", "message": "Nothing here."}}

    def test_unexpected_error_hides_its_text(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(typer.Exit) as exit_, command(json_output=False, debug=False):
            raise KeyError("sk-secret")
        err = capsys.readouterr().err
        assert exit_.value.exit_code == 4
        assert "KeyError" in err
        assert "sk-secret" not in err
        assert "Traceback" not in err

    def test_error_with_debug_prints_traceback(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(typer.Exit), command(json_output=False, debug=True):
            raise errors.NotFoundError("Nothing here.")
        assert "Traceback" in capsys.readouterr().err

    def test_warnings_of_the_driver_are_hidden(self) -> None:
        code = (
            "import logging; from vectorforge.cli.terminal import command\n"
            "with command(json_output=False, debug=False):\n"
            "    import psycopg_pool; logging.getLogger('psycopg.pool').warning('connection refused')"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stderr == ""

    @pytest.mark.parametrize(
        ("module", "extras"), [("docx.oxml", "ingest"), ("onnx", "local"), ("psycopg", "cli,ingest,local")]
    )
    def test_missing_package_error_names_its_extra(
        self, capsys: pytest.CaptureFixture[str], module: str, extras: str
    ) -> None:
        with pytest.raises(typer.Exit) as exit_, command(json_output=False, debug=False):
            raise ModuleNotFoundError(f"No module named '{module}'", name=module)
        assert exit_.value.exit_code == 2
        advice = f"{module} is not installed: pip install 'vectorforge[{extras}]', or in a checkout uv sync "
        assert f"error: {advice}--inexact" in capsys.readouterr().err

    def test_doctor_names_the_extra_as_errors_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "rapidocr", None)
        check = next(check for check in run_checks(None, 0) if check.name == "[ocr]")
        assert check.detail.startswith("rapidocr not installed: no text from scans")
        advice = "pip install 'vectorforge[ocr]', or in a checkout uv sync --inexact --extra ocr"
        assert check.remedy == advice

    def test_usage_error_names_the_command(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["search", "--top-k", "none", "x"]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert "--top-k" in err
        assert "vectorforge search --help" in err

    def test_usage_error_of_choice_names_the_choices(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["search", "--mode", "foo", "x"]) == 2
        assert capsys.readouterr().err == (
            "error: Invalid value for '--mode': 'foo' is not one of 'hybrid', 'dense', 'lexical'. "
            "See `vectorforge search --help`.\n"
        )

    def test_interrupt_exits_with_130(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(typer.Exit) as exit_, command(json_output=False, debug=False):
            raise KeyboardInterrupt
        assert exit_.value.exit_code == 130
        assert "Interrupted" in capsys.readouterr().err


class TestTerminal:
    def test_table_in_pipe_is_tab_separated(self, capsys: pytest.CaptureFixture[str]) -> None:
        Terminal().table(["Name", "Size#"], [["a\tb\nc", 1], ["d" * 300, None]])
        assert capsys.readouterr().out.splitlines() == ["name\tsize", "a b c\t1", "d" * 300 + "\t"]

    def test_text_in_pipe_is_plain(self, capsys: pytest.CaptureFixture[str]) -> None:
        terminal = Terminal()
        terminal.line("bold [red]not markup[/red] " + "x" * 200, style="bold red")
        terminal.warn("careful")
        out, err = capsys.readouterr()
        assert out == "bold [red]not markup[/red] " + "x" * 200 + "\n"
        assert err == "warning: careful\n"

    def test_control_characters_are_removed(self) -> None:
        assert printable("\x1b]0;owned\x07 a\u009bb\tc\n\x00") == "]0;owned ab\tc\n"
        assert printable("a\u202egnp.exe\u2069") == "agnp.exe"

    def test_control_characters_in_json_are_escaped(self, capsys: pytest.CaptureFixture[str]) -> None:
        value = {"text": "\x1b[2J \u009b2J \x7f \u202egnp.exe ü"}
        terminal = Terminal(json_output=True)
        terminal.json(value)
        terminal.warn(value["text"])
        terminal.error(value["text"])
        out, err = capsys.readouterr()
        assert json.loads(out) == value
        assert printable(out + err) == out + err
        assert err.count("\\u009b2J") == 2

    def test_json_keeps_non_ascii_characters(self, capsys: pytest.CaptureFixture[str]) -> None:
        Terminal(json_output=True).json({"answer": "größer", "code": ExitCode.OK, "set": frozenset("ba")})
        assert capsys.readouterr().out == '{"answer": "größer", "code": 0, "set": ["a", "b"]}\n'

    def test_notes_with_json_are_silent(self, capsys: pytest.CaptureFixture[str]) -> None:
        Terminal(json_output=True).note("working")
        assert capsys.readouterr().err == ""

    def test_colors_on_terminal_follow_no_color(self) -> None:
        assert "\x1b[" in run_on_terminal("--help")
        assert "\x1b[1;3" not in run_on_terminal("--help", NO_COLOR="1")


class TestHelp:
    @pytest.mark.parametrize("words", [[name] for name in SINGLE] + IN_GROUPS, ids=" ".join)
    def test_every_command_has_json_option(
        self, words: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run([*words, "--help"]) == 0
        assert "--json" in capsys.readouterr().out

    @pytest.mark.parametrize("words", [[], *([name] for name in SINGLE), *IN_GROUPS], ids=" ".join)
    def test_help_shows_flags_without_type(
        self, words: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run([*words, "--help"]) == 0
        shown = capsys.readouterr().out
        assert "--help" in shown
        assert "bool" not in shown

    def test_lines_of_help_fit_into_80_columns(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        assert run(["mcp", "--help"]) == 0
        shown = [line.strip() for line in capsys.readouterr().out.splitlines()]
        assert [line for line in shown[3:12] if 0 < len(line) < 30] == ["and stdout).", "running server."]

    @pytest.mark.parametrize("name", SINGLE)
    def test_help_shows_an_example(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        run([name, "--help"])
        assert f"vectorforge {name}" in capsys.readouterr().out.partition("Example")[2]

    def test_help_imports_nothing_heavy(self) -> None:
        code = (
            "import sys; from vectorforge.cli.app import run; run(['--help']); "
            "heavy = {'fastapi', 'uvicorn', 'psycopg', 'numpy', 'onnxruntime', 'openai', 'anthropic'}; "
            "sys.stderr.write(' '.join(heavy & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stderr == ""

    @pytest.mark.parametrize(
        ("words", "others"),
        [
            (["--version"], {"vectorforge.config", "vectorforge.cli.session"}),
            (["completion", "bash"], {"vectorforge.config", "vectorforge.cli.session"}),
            (
                ["stats", "--help"],
                {"vectorforge.cli.ingest", "vectorforge.evaluation", "vectorforge.cli.doctor"},
            ),
        ],
    )
    def test_command_imports_no_other_command(self, words: list[str], others: set[str]) -> None:
        code = (
            f"import sys; from vectorforge.cli.app import run; run({words!r}); "
            f"sys.stderr.write(' '.join({others!r} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stderr == ""

    def test_version_option_prints_version(self) -> None:
        assert run_vectorforge("--version").stdout.startswith("vectorforge ")


def run_vectorforge(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([VECTORFORGE, *arguments], capture_output=True, text=True, timeout=60, check=False)


def run_on_terminal(*arguments: str, **environment: str) -> str:
    """Return the command's output on a terminal."""
    ours, theirs = pty.openpty()
    env = {
        **{k: v for k, v in os.environ.items() if k != "NO_COLOR"},
        "TERM": "xterm-256color",
        **environment,
    }
    process = subprocess.Popen([VECTORFORGE, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    shown = b""
    with open(ours, "rb", buffering=0) as reader:  # noqa: PTH123 - a file descriptor, not a path
        try:
            while piece := reader.read(65536):
                shown += piece
        except OSError:
            pass  # Linux returns EIO when the other side is closed
    assert process.wait(60) == 0
    return shown.decode()
