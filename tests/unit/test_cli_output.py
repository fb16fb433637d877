"""What the command line prints and which code it exits with, without a database."""

import io
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from pydantic import SecretStr

from vectorforge import errors
from vectorforge.cli.app import run
from vectorforge.cli.commands.ask import parse_filter, parse_metadata, read_question
from vectorforge.cli.commands.server import bind, stop_on_sigterm
from vectorforge.cli.commands.up import serving_config
from vectorforge.cli.exit_codes import ExitCode, exit_code_for
from vectorforge.cli.ingest.files import find_files, shown_source, source_name
from vectorforge.cli.terminal import Terminal, command, printable
from vectorforge.config import DatabaseSettings, ServerSettings, VectorForgeConfig
from vectorforge.db.login import login_passwords
from vectorforge.local import laptop

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
    def test_tell_what_can_be_retried_from_what_must_be_changed(
        self, error: errors.VectorForgeError, code: int
    ) -> None:
        assert exit_code_for(error) == code

    def test_exist_for_every_error_and_never_say_that_all_is_well(self) -> None:
        for kind in all_errors():
            error = kind.__new__(kind)
            assert exit_code_for(error) in (ExitCode.USAGE, ExitCode.UNAVAILABLE), kind

    def test_are_documented_in_the_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        run(["--help"])
        shown = " ".join(capsys.readouterr().out.split())
        for piece in ("0 done", "1 done, but", "2 the command", "3 the data", "4 a bug", "130 interrupted"):
            assert piece in shown


class TestErrors:
    def test_are_one_line_on_stderr_without_a_traceback(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(typer.Exit) as exit_, command(json_output=False, debug=False):
            raise errors.DatabaseUnavailableError("The database\nis gone.")
        out, err = capsys.readouterr()
        assert exit_.value.exit_code == 3
        assert out == ""
        assert err == "error: The database is gone.\n"

    def test_are_json_when_json_was_asked_for(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(typer.Exit), command(json_output=True, debug=False):
            raise errors.NotFoundError("Nothing here.")
        out, err = capsys.readouterr()
        assert out == ""
        assert json.loads(err) == {"error": {"code": "not_found", "message": "Nothing here."}}

    def test_nobody_expected_hide_their_text(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(typer.Exit) as exit_, command(json_output=False, debug=False):
            raise KeyError("sk-secret")
        err = capsys.readouterr().err
        assert exit_.value.exit_code == 4
        assert "KeyError" in err
        assert "sk-secret" not in err
        assert "Traceback" not in err

    def test_show_where_with_debug(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(typer.Exit), command(json_output=False, debug=True):
            raise errors.NotFoundError("Nothing here.")
        assert "Traceback" in capsys.readouterr().err

    def test_of_a_missing_extra_name_it(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(typer.Exit) as exit_, command(json_output=False, debug=False):
            raise ModuleNotFoundError("No module named 'docx'", name="docx")
        assert exit_.value.exit_code == 2
        assert "docx is not installed" in capsys.readouterr().err

    def test_of_usage_name_the_command(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["search", "--top-k", "none", "x"]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert "--top-k" in err
        assert "vectorforge search --help" in err

    def test_interrupting_is_130(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(typer.Exit) as exit_, command(json_output=False, debug=False):
            raise KeyboardInterrupt
        assert exit_.value.exit_code == 130
        assert "Interrupted" in capsys.readouterr().err


class TestTerminal:
    def test_tables_are_tab_separated_off_a_terminal(self, capsys: pytest.CaptureFixture[str]) -> None:
        Terminal().table(["Name", "Size#"], [["a\tb\nc", 1], ["d" * 300, None]])
        assert capsys.readouterr().out.splitlines() == ["name\tsize", "a b c\t1", "d" * 300 + "\t"]

    def test_text_is_plain_off_a_terminal(self, capsys: pytest.CaptureFixture[str]) -> None:
        terminal = Terminal()
        terminal.line("bold [red]not markup[/red] " + "x" * 200, style="bold red")
        terminal.warn("careful")
        out, err = capsys.readouterr()
        assert out == "bold [red]not markup[/red] " + "x" * 200 + "\n"
        assert err == "warning: careful\n"

    def test_documents_cannot_drive_the_terminal(self) -> None:
        assert printable("\x1b]0;owned\x07 a\u009bb\tc\n\x00") == "]0;owned ab\tc\n"

    def test_json_keeps_what_is_not_ascii(self, capsys: pytest.CaptureFixture[str]) -> None:
        Terminal(json_output=True).json({"answer": "größer", "code": ExitCode.OK, "set": frozenset("ba")})
        assert capsys.readouterr().out == '{"answer": "größer", "code": 0, "set": ["a", "b"]}\n'

    def test_notes_are_silent_with_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        Terminal(json_output=True).note("working")
        assert capsys.readouterr().err == ""

    def test_colours_show_on_a_terminal_unless_unwanted(self) -> None:
        assert "\x1b[" in run_on_terminal("--help")
        assert "\x1b[1;3" not in run_on_terminal("--help", NO_COLOR="1")


class TestHelp:
    @pytest.mark.parametrize("words", [[name] for name in SINGLE] + IN_GROUPS, ids=" ".join)
    def test_every_command_takes_json(self, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert run([*words, "--help"]) == 0
        assert "--json" in capsys.readouterr().out

    @pytest.mark.parametrize("words", [[], *([name] for name in SINGLE), *IN_GROUPS], ids=" ".join)
    def test_shows_flags_without_a_type(self, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert run([*words, "--help"]) == 0
        shown = capsys.readouterr().out
        assert "--help" in shown
        assert "bool" not in shown

    @pytest.mark.parametrize("name", SINGLE)
    def test_teaches_by_example(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        run([name, "--help"])
        assert f"vectorforge {name}" in capsys.readouterr().out.partition("Example")[2]

    def test_needs_nothing_heavy(self) -> None:
        code = (
            "import sys; from vectorforge.cli.app import run; run(['--help']); "
            "heavy = {'fastapi', 'uvicorn', 'psycopg', 'numpy', 'onnxruntime', 'openai', 'anthropic'}; "
            "sys.stderr.write(' '.join(heavy & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stderr == ""

    def test_version(self) -> None:
        assert run_vectorforge("--version").stdout.startswith("vectorforge ")


class TestFiles:
    @pytest.fixture
    def tree(self, tmp_path: Path) -> Path:
        for name in (
            "b.md",
            "a.txt",
            "sub/c.md",
            ".git/x.md",
            ".hidden.md",
            "photo.PNG",
            "node_modules/m.md",
        ):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("text")
        (tmp_path / "sub" / "loop").symlink_to(tmp_path)
        return tmp_path

    def test_walks_sorted_past_hidden_binary_and_looping_ones(self, tree: Path) -> None:
        found = find_files([tree])
        assert [file.name for file in found.files] == ["a.txt", "b.md", "sub/c.md"]
        assert {Path(file.source).name: file.reason for file in found.skipped} == {
            ".git": "hidden",
            ".hidden.md": "hidden",
            "photo.PNG": ".png files cannot be read.",
            "node_modules": "folder of installed or compiled code",
            "loop": "symbolic link to a folder",
        }

    @pytest.mark.parametrize(("glob", "names"), [("*.md", ["b.md", "sub/c.md"]), ("sub/*", ["sub/c.md"])])
    def test_glob_matches_name_or_path(self, tree: Path, glob: str, names: list[str]) -> None:
        assert [file.name for file in find_files([tree], glob=glob).files] == names

    def test_a_named_file_is_taken_as_it_is_and_once(self, tree: Path) -> None:
        hidden = tree / ".hidden.md"
        assert [file.path for file in find_files([hidden, hidden]).files] == [hidden]

    def test_a_missing_path_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(errors.InvalidInputError, match="nowhere"):
            find_files([tmp_path / "nowhere"])

    def test_a_file_has_one_name_however_it_is_reached(
        self, tree: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tree)
        name = (tree / "sub" / "c.md").resolve().as_posix()
        assert source_name(Path("sub/c.md")) == source_name(tree / "sub" / "loop" / "sub" / "c.md") == name
        assert shown_source(name) == "./sub/c.md"
        monkeypatch.chdir(tree / "sub")
        assert source_name(Path("c.md")) == name
        assert shown_source((tree / "a.txt").as_posix()) == (tree / "a.txt").as_posix()
        assert shown_source("uploaded.md") == "uploaded.md"


class TestArguments:
    def test_question_from_stdin(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO("  What?\n"))
        assert read_question("-") == "What?"

    def test_empty_question(self) -> None:
        with pytest.raises(errors.InvalidInputError, match="QUESTION"):
            read_question("  ")

    def test_filter(self) -> None:
        assert parse_filter('{"a": {"$gt": 1}}') == {"a": {"$gt": 1}}
        assert parse_filter(None) is None
        for wrong in ("[1]", "{", ""):
            with pytest.raises(errors.InvalidInputError, match="--filter"):
                parse_filter(wrong)

    def test_metadata(self) -> None:
        assert parse_metadata(["team=support", "link=a=b"]) == {"team": "support", "link": "a=b"}
        for wrong in ("team", "=x"):
            with pytest.raises(errors.InvalidInputError, match="key=value"):
                parse_metadata([wrong])

    def test_passwords_of_our_roles_only(self) -> None:
        settings = DatabaseSettings(
            database_url=SecretStr("postgresql://vectorforge_app:p%40ss@host/db"),
            log_writer_database_url=SecretStr("postgresql://somebody:else@host/db"),
        )
        passwords = login_passwords(settings, ("vectorforge_app", "vectorforge_log_writer"))
        assert {role: secret.get_secret_value() for role, secret in passwords.items()} == {
            "vectorforge_app": "p@ss"
        }
        assert "p@ss" not in repr(passwords)


class TestUp:
    def test_a_taken_port_is_an_error_that_names_the_option(self) -> None:
        with bind("127.0.0.1", 0) as taken:
            port = taken.getsockname()[1]
            done = run_vectorforge("up", "--port", str(port))
        assert done.returncode == 2
        assert str(port) in done.stderr
        assert "--port" in done.stderr

    def test_answers_to_its_own_names_only(self) -> None:
        config = serving_config(VectorForgeConfig(), "127.0.0.1")
        assert config.server.auth == "local"
        assert set(config.server.allowed_hosts) == {"localhost", "127.0.0.1", "::1"}

    def test_a_chosen_login_is_kept(self) -> None:
        keys = ServerSettings(api_keys={"0" * 64: "acme"})
        for host in ("127.0.0.1", "0.0.0.0"):  # noqa: S104 - nothing listens
            config = serving_config(VectorForgeConfig(server=keys), host)
            assert config.server.auth == "api_key"
        local = VectorForgeConfig(server=ServerSettings(auth="local", api_keys={"0" * 64: "acme"}))
        assert serving_config(local, "127.0.0.1").server.auth == "local"

    def test_other_machines_are_not_served_without_a_login(self) -> None:
        for server in (ServerSettings(), ServerSettings(auth="local")):
            config = VectorForgeConfig(server=server)
            with pytest.raises(errors.ConfigurationError, match="--insecure"):
                serving_config(config, "192.0.2.1")
            assert serving_config(config, "192.0.2.1", insecure=True).server.auth == "local"
        issued = VectorForgeConfig(server=ServerSettings(auth="api_key"))  # whose keys are in the database
        assert serving_config(issued, "192.0.2.1").server.auth == "api_key"

    def test_sigterm_ends_like_ctrl_c(self) -> None:
        before = signal.getsignal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt), stop_on_sigterm():
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) == before

    def test_the_sample_is_the_readme_and_the_docs(self) -> None:
        files = dict(laptop.sample_documents())
        assert next(iter(files)) == "vectorforge/README.md"
        assert all(source.startswith("vectorforge/") for source in files)
        assert all(file.is_file() for file in files.values())

    def test_a_data_folder_that_cannot_be_made_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with (
            pytest.raises(errors.ConfigurationError, match="--data-dir"),
            laptop.local_setup(VectorForgeConfig(), data_dir=tmp_path / "file" / "x"),
        ):
            pass

    def test_a_configured_database_starts_none(self) -> None:
        database = DatabaseSettings(database_url=SecretStr("postgresql://vectorforge_app@db/x"))
        with laptop.local_setup(VectorForgeConfig(database=database)) as setup:
            assert (setup.embedded, setup.migrator_url) == (False, None)


def run_vectorforge(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([VECTORFORGE, *arguments], capture_output=True, text=True, timeout=60, check=False)


def run_on_terminal(*arguments: str, **environment: str) -> str:
    """Everything the command prints when a person's terminal is on the other side."""
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
            pass  # Linux says EIO when the other side is closed
    assert process.wait(60) == 0
    return shown.decode()
