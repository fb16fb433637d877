"""A function's bundle has all that the function needs, and nothing more."""

import importlib.util
import json
import os
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from infra.bundling.__main__ import main
from infra.bundling.bundle import BUDGET_BYTES, COUNTS_TOKENS, LAMBDA_LIMIT_BYTES, STANDS_ALONE, Bundle
from infra.bundling.token_tables import TABLES, TokenTableError, cached_name, copy_token_tables
from tests.infra.reachable_imports import Reachable, reachable_imports
from tests.support.formats.scans import Sheet, pdf_of, prose

ROOT = Path(__file__).parents[2]
FUNCTIONS = list(BUDGET_BYTES)
OF_THE_LIBRARY = [function for function in FUNCTIONS if function not in STANDS_ALONE]

NOT_ON_LAMBDA = {  # imports of the library that no bundle has, with the reason
    **dict.fromkeys(
        ["numpy", "onnx", "onnxruntime", "safetensors", "tokenizers"], "the local embedding model"
    ),
    **dict.fromkeys(["sentence_transformers", "torch"], "the Nomic embedder, which brings torch"),
    **dict.fromkeys(["anthropic", "openai"], "vendors' SDKs, unless a stage's settings need them"),
    **dict.fromkeys(["PIL", "rapidocr"], "OCR"),
    "truststore": "the authorities of macOS and Windows",
}
READERS = ["docutils", "docx", "gcld3", "pypdfium2", "selectolax", "striprtf", "yaml"]
ELSEWHERE = {  # reachable imports of a function that only another function's bundle has
    "query": dict.fromkeys(READERS, "documents are read in the ingest function"),
    "ingest": {
        "httpx2": "passages are reranked in the query function, whose mcp brings it",
        **dict.fromkeys(("jsonschema", "referencing"), "answers in JSON are checked in the query function"),
    },
    "log_writer": dict.fromkeys(("aiohttp", "orjson", "yarl"), "the query function sends to the queue"),
    "migrate": {},
}
Bundles = Callable[[str], tuple[Path, Bundle]]
Environment = Callable[..., dict[str, str]]


def reachable(folder: Path, function: str) -> Reachable:
    """Return what a function's handler can import; ``extract.reading`` imports readers by their names."""
    readers = (
        sorted(folder.glob("vectorforge/ingestion/extract/readers/*.py")) if function == "ingest" else []
    )
    named = [".".join(path.relative_to(folder).with_suffix("").parts) for path in readers]
    return reachable_imports(folder, f"functions.{function}.handler", "vectorforge.runtime.__main__", *named)


@pytest.mark.parametrize("function", OF_THE_LIBRARY)
def test_bundle_contains_every_reachable_import(bundle: Bundles, function: str) -> None:
    folder, _ = bundle(function)
    found = reachable(folder, function)
    assert found.missing_modules == set()
    absent = {name for name in found.packages if not _is_importable(folder, name)}
    assert absent <= NOT_ON_LAMBDA.keys() | ELSEWHERE[function].keys()


@pytest.mark.parametrize("function", OF_THE_LIBRARY)
def test_bundle_contains_no_unreachable_package(bundle: Bundles, function: str) -> None:
    folder, _ = bundle(function)
    found = reachable(folder, function)
    distributions = packages_distributions()
    imported = {canonicalize_name(d) for name in found.packages for d in distributions.get(name, [])}
    assert _requested_by(function) - imported <= {"python-multipart"}  # imported by FastAPI, for forms
    assert {path.name for path in (folder / "functions").iterdir() if path.is_dir()} - {"__pycache__"} == {
        function
    }


@pytest.mark.parametrize("function", sorted(STANDS_ALONE))
def test_standalone_function_bundle_contains_handler_only(bundle: Bundles, function: str) -> None:
    folder, _ = bundle(function)
    names = ("functions/__init__.py", f"functions/{function}/__init__.py", f"functions/{function}/handler.py")
    sources = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {name for name in sources if not name.endswith(".pyc")} == set(names)
    of_the_runtime = {"boto3", "botocore"}  # https://docs.aws.amazon.com/lambda/latest/dg/lambda-python.html
    assert reachable_imports(folder, f"functions.{function}.handler").packages <= of_the_runtime


@pytest.mark.parametrize("function", FUNCTIONS)
def test_handler_import_succeeds_with_bundle_alone(
    bundle: Bundles, bare_python: tuple[str, ...], bare_environment: Environment, function: str
) -> None:
    folder, _ = bundle(function)
    code = f"import functions.{function}.handler as module; assert callable(module.handler)"
    subprocess.run([*bare_python, "-c", code], env=bare_environment(folder), check=True, timeout=60)


READING = """
import sys
from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.readers.pdf import read_pdf
from vectorforge.ingestion.types import OcrOptions
try:  # in this process, since a child has this machine's packages; and tesseract may be installed
    read_pdf(sys.stdin.buffer.read(), ocr=OcrOptions(enabled=True, engine="rapidocr"))
except ExtractionError as exc:
    print(exc.reason, exc.message)
"""


def test_scan_is_rejected_by_ingest_bundle_as_not_deployed(
    bundle: Bundles, bare_python: tuple[str, ...], bare_environment: Environment
) -> None:
    folder, _ = bundle("ingest")
    command = [*bare_python, "-c", READING]
    scan = pdf_of([Sheet(prose(["Text."]))])
    environment = bare_environment(folder)
    done = subprocess.run(command, input=scan, env=environment, capture_output=True, check=True, timeout=60)
    assert done.stdout.startswith(b"not_deployed OCR needs rapidocr (VECTORFORGE_OCR_ENGINE is rapidocr)")
    assert b"On AWS the ingest function has no engine" in done.stdout


@pytest.mark.parametrize("function", FUNCTIONS)
def test_bundle_bytecode_is_unchecked_hash_based(bundle: Bundles, function: str) -> None:
    folder, report = bundle(function)
    assert report.compiled
    for source in folder.rglob("*.py"):
        compiled = Path(importlib.util.cache_from_source(str(source)))
        header = compiled.read_bytes()[:8]
        assert header[:4] == importlib.util.MAGIC_NUMBER, source
        assert int.from_bytes(header[4:], "little") == 0b01, source  # unchecked hash-based (PEP 552)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_bundle_size_is_reported_and_within_budget(bundle: Bundles, function: str) -> None:
    folder, report = bundle(function)
    assert report.total_bytes == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert report.total_bytes <= BUDGET_BYTES[function] < LAMBDA_LIMIT_BYTES
    assert bool(report.token_table_bytes) == (function in COUNTS_TOKENS)
    assert f"{report.total_bytes / 1e6:.1f} MB" in str(report)


def test_bundle_files_are_readable_and_wrapper_is_executable(bundle: Bundles) -> None:
    folder, _ = bundle("query")
    modes = {path: path.stat().st_mode for path in folder.rglob("*")}
    assert all(mode & stat.S_IROTH for mode in modes.values())
    assert modes[folder / "vectorforge" / "runtime" / "exec_wrapper"] & stat.S_IXOTH
    page = folder / "vectorforge" / "api" / "page"
    assert (page / "index.html").is_file()
    assert (page / "ask" / "start.js").is_file()


COUNTING = """
import json, sys
connections = []
def refuse(name, args):
    if name.startswith("socket."):
        connections.append((name, str(args)))
        raise OSError("There is no network.")
sys.addaudithook(refuse)
from vectorforge.tokens import estimate_tokens
models = ("gpt-4", "gpt-4o", "gpt-oss-20b")
counts = [estimate_tokens(text, model) for model in models for text in sys.argv[1:]]
print(json.dumps({"counts": counts, "connections": connections}))
"""


@pytest.mark.parametrize("function", sorted(COUNTS_TOKENS))
def test_bundled_token_tables_count_exactly_without_network(
    bundle: Bundles, bare_python: tuple[str, ...], bare_environment: Environment, function: str
) -> None:  # A-055, C07
    folder, _ = bundle(function)
    texts = ["antidisestablishmentarianism", "2 + 2 = 4", "お誕生日おめでとう"]
    command = [*bare_python, "-c", COUNTING, *texts]
    process = subprocess.run(
        command, env=bare_environment(folder), capture_output=True, text=True, check=True, timeout=60
    )
    # https://cookbook.openai.com/examples/how_to_count_tokens_with_tiktoken
    cl100k, o200k = [6, 7, 9], [6, 7, 8]
    assert json.loads(process.stdout) == {"counts": [*cl100k, *o200k, *o200k], "connections": []}


def test_tiktoken_cache_dir_variable_is_used(tmp_path: Path, uv: str) -> None:
    copy_token_tables(tmp_path / "tables", uv=uv, python=sys.executable)
    environment = {**os.environ, "TIKTOKEN_CACHE_DIR": str(tmp_path / "tables")}
    command = [sys.executable, "-c", COUNTING, "2 + 2 = 4"]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(process.stdout) == {"counts": [7, 7, 7], "connections": []}


def test_estimate_that_may_not_load_reads_no_token_table(tmp_path: Path, uv: str) -> None:  # fault 47
    """An answer cut by its deadline has no second left for it."""
    copy_token_tables(tmp_path / "tables", uv=uv, python=sys.executable)
    environment = {**os.environ, "TIKTOKEN_CACHE_DIR": str(tmp_path / "tables")}
    counting = """
from vectorforge.tokens import estimate_tokens
text = "antidisestablishmentarianism"
print(estimate_tokens(text, may_load=False), estimate_tokens(text), estimate_tokens(text, may_load=False))
"""
    command = [sys.executable, "-c", counting]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert process.stdout.split() == ["7", "6", "6"]


def test_local_token_tables_count_exactly_without_network(tmp_path: Path, uv: str) -> None:  # A-055, C07
    """As `make run` does before it starts the server."""
    inherited = {name: value for name, value in os.environ.items() if name != "TIKTOKEN_CACHE_DIR"}
    environment = {**inherited, "XDG_CACHE_HOME": str(tmp_path), "UV": uv, "TMPDIR": str(tmp_path)}
    subprocess.run(
        [sys.executable, "-m", "infra.bundling.token_tables"], env=environment, cwd=ROOT, check=True
    )
    command = [sys.executable, "-c", COUNTING, "2 + 2 = 4"]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(process.stdout) == {"counts": [7, 7, 7], "connections": []}


def test_make_run_fetches_token_tables_once(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = ["make", "--dry-run", "run"]
    fetching = "python -m infra.bundling.token_tables"
    first = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    (tmp_path / "vectorforge" / "tiktoken").mkdir(parents=True)
    second = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (fetching in first.stdout, fetching in second.stdout) == (True, False)


def test_damaged_token_table_is_refetched_and_missing_one_raises(tmp_path: Path, uv: str) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / cached_name("cl100k_base")).write_bytes(b"half a tab")
    copy_token_tables(tmp_path / "tables", uv=uv, python=sys.executable, cache_dir=cache)
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {cached_name(name) for name in TABLES}
    copy_token_tables(tmp_path / "again", uv="/bin/false", python=sys.executable, cache_dir=cache)
    with pytest.raises(TokenTableError, match="unavailable"):
        copy_token_tables(
            tmp_path / "x", uv="/bin/false", python=sys.executable, cache_dir=tmp_path / "empty"
        )


@pytest.mark.parametrize("function", ["query", "ingest"])  # they have every package of the others
def test_function_dependencies_have_wheels_for_lambda_platform(
    function: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([function, "--output", str(tmp_path / "bundle")]) == 0
    assert capsys.readouterr().out.startswith(f"{function}: ")
    libraries = [path.name for path in (tmp_path / "bundle").rglob("*.cpython-*.so")]
    assert libraries
    assert all(name.endswith(".cpython-314-aarch64-linux-gnu.so") for name in libraries)


def test_non_empty_output_folder_is_rejected_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "letter.txt").write_text("dear ...")
    assert main(["query", "--output", str(tmp_path)]) == 1
    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def _is_importable(folder: Path, package: str) -> bool:
    return any(folder.glob(f"{package}.*")) or (folder / package).is_dir()


def _requested_by(function: str) -> set[str]:
    """Return the distributions in the function's group in pyproject.toml."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    lines = [*groups["function"], *groups[f"function-{function.replace('_', '-')}"]]
    return {canonicalize_name(Requirement(line).name) for line in lines if isinstance(line, str)}
