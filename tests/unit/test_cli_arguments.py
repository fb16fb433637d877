"""Arguments of the command line: files, filters, and the settings of ``vectorforge up``."""

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from vectorforge import errors
from vectorforge.cli.commands.serve import bind, serving_config
from vectorforge.cli.ingest.files import find_files
from vectorforge.cli.options import parse_filter, parse_metadata, read_question, shown_source, source_name
from vectorforge.cli.terminal import stop_on_sigterm
from vectorforge.config import DatabaseSettings, ServerSettings, VectorForgeConfig
from vectorforge.db.login import login_passwords
from vectorforge.local import laptop

VECTORFORGE = Path(sys.executable).with_name("vectorforge")


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

    def test_folder_is_walked_sorted_without_hidden_binary_or_looping_files(self, tree: Path) -> None:
        found = find_files([tree])
        assert [file.name for file in found.files] == ["a.txt", "b.md", "sub/c.md"]
        assert {Path(file.source).name: file.reason for file in found.skipped} == {
            ".git": "hidden",
            ".hidden.md": "hidden",
            "photo.PNG": "images are read with --ocr only",
            "node_modules": "folder of installed or compiled code",
            "loop": "symbolic link to a folder",
        }

    @pytest.mark.parametrize(("glob", "names"), [("*.md", ["b.md", "sub/c.md"]), ("sub/*", ["sub/c.md"])])
    def test_glob_matches_name_or_path(self, tree: Path, glob: str, names: list[str]) -> None:
        assert [file.name for file in find_files([tree], glob=glob).files] == names

    def test_named_file_is_read_once_even_if_hidden(self, tree: Path) -> None:
        hidden = tree / ".hidden.md"
        assert [file.path for file in find_files([hidden, hidden]).files] == [hidden]

    def test_missing_path_is_named_in_error(self, tmp_path: Path) -> None:
        with pytest.raises(errors.InvalidInputError, match="nowhere"):
            find_files([tmp_path / "nowhere"])

    @pytest.mark.parametrize(
        ("path", "reason"),
        [
            ("locked/a.md", "error: locked/a.md cannot be opened (PermissionError)."),
            (".", "Skipped 1: cannot be opened (PermissionError)."),
        ],
    )
    def test_folder_without_execute_permission_is_reported(
        self, tmp_path: Path, path: str, reason: str
    ) -> None:
        (tmp_path / "locked").mkdir()
        (tmp_path / "locked" / "a.md").write_text("text")
        (tmp_path / "locked").chmod(0o600)
        # root opens every folder, unless it lacks these capabilities
        as_anyone = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
        done = subprocess.run(
            [*as_anyone, VECTORFORGE, "ingest", path],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert reason in done.stderr
        assert done.returncode == 2

    def test_web_address_is_refused_with_the_way_to_download_it(self) -> None:
        with pytest.raises(errors.InvalidInputError, match="Web addresses are not fetched"):
            find_files([Path("https://example.com/x")])

    def test_source_of_file_does_not_depend_on_the_path_given(
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
    def test_question_dash_is_read_from_stdin(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO("  What?\n"))
        assert read_question("-") == "What?"

    def test_empty_question_is_rejected(self) -> None:
        with pytest.raises(errors.InvalidInputError, match="QUESTION"):
            read_question("  ")

    def test_filter_must_be_a_json_object(self) -> None:
        assert parse_filter('{"a": {"$gt": 1}}') == {"a": {"$gt": 1}}
        assert parse_filter(None) is None
        for wrong in ("[1]", "{", ""):
            with pytest.raises(errors.InvalidInputError, match="--filter"):
                parse_filter(wrong)

    def test_metadata_must_be_key_value_pairs(self) -> None:
        assert parse_metadata(["team=support", "link=a=b"]) == {"team": "support", "link": "a=b"}
        for wrong in ("team", "=x"):
            with pytest.raises(errors.InvalidInputError, match="key=value"):
                parse_metadata([wrong])

    def test_login_passwords_include_own_roles_only(self) -> None:
        settings = DatabaseSettings(
            database_url=SecretStr("postgresql://vectorforge_app:p%40ss@host/db"),
            log_writer_database_url=SecretStr("postgresql://somebody:else@host/db"),
        )
        passwords = login_passwords(settings)
        assert {role: secret.get_secret_value() for role, secret in passwords.items()} == {
            "vectorforge_app": "p@ss"
        }
        assert "p@ss" not in repr(passwords)


class TestUp:
    def test_taken_port_error_names_the_option(self) -> None:
        with bind("127.0.0.1", 0) as taken:
            port = taken.getsockname()[1]
            command: list[str | Path] = [VECTORFORGE, "up", "--port", str(port)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2
        assert str(port) in done.stderr
        assert "--port" in done.stderr

    def test_local_server_allows_its_own_hosts_only(self) -> None:
        config = serving_config(VectorForgeConfig(), "127.0.0.1")
        assert config.server.auth == "local"
        assert set(config.server.allowed_hosts) == {"localhost", "127.0.0.1", "::1"}

    def test_configured_login_is_not_overridden(self) -> None:
        keys = ServerSettings(api_keys={"0" * 64: "acme"})
        for host in ("127.0.0.1", "0.0.0.0"):  # noqa: S104 - nothing listens
            config = serving_config(VectorForgeConfig(server=keys), host)
            assert config.server.auth == "api_key"
        local = VectorForgeConfig(server=ServerSettings(auth="local", api_keys={"0" * 64: "acme"}))
        assert serving_config(local, "127.0.0.1").server.auth == "local"

    def test_other_hosts_without_login_are_rejected(self) -> None:
        for server in (ServerSettings(), ServerSettings(auth="local")):
            config = VectorForgeConfig(server=server)
            with pytest.raises(errors.ConfigurationError, match="--insecure"):
                serving_config(config, "192.0.2.1")
            assert serving_config(config, "192.0.2.1", insecure=True).server.auth == "local"
        issued = VectorForgeConfig(server=ServerSettings(auth="api_key"))  # whose keys are in the database
        assert serving_config(issued, "192.0.2.1").server.auth == "api_key"

    def test_sigterm_raises_keyboard_interrupt(self) -> None:
        before = signal.getsignal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt), stop_on_sigterm():
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) == before

    def test_sample_is_readme_and_docs_with_common_questions_first(self) -> None:
        files = dict(laptop.sample_documents())
        assert [*files][:2] == ["vectorforge/README.md", "vectorforge/docs/use/questions.md"]
        assert all(source.startswith("vectorforge/") for source in files)
        assert all(file.is_file() for file in files.values())

    def test_unusable_data_folder_error_names_the_option(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with (
            pytest.raises(errors.ConfigurationError, match="--data-dir"),
            laptop.local_setup(VectorForgeConfig(), data_dir=tmp_path / "file" / "x", create=True),
        ):
            pass

    def test_missing_database_is_created_on_demand_only(self, tmp_path: Path) -> None:
        with (
            pytest.raises(errors.ConfigurationError, match="There is no database in"),
            laptop.local_setup(VectorForgeConfig(), data_dir=tmp_path / "none"),
        ):
            pass
        assert not (tmp_path / "none").exists()

    def test_configured_database_starts_no_embedded_one(self) -> None:
        database = DatabaseSettings(database_url=SecretStr("postgresql://vectorforge_app@db/x"))
        with laptop.local_setup(VectorForgeConfig(database=database)) as setup:
            assert (setup.embedded, setup.migrator_url) == (False, None)
