"""``vectorforge doctor``. No check raises; each names the remedy when it is not ok."""

import asyncio
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import vectorforge
from vectorforge.bootstrap import credential_store
from vectorforge.cli.commands.serve import bind
from vectorforge.cli.doctor.database_checks import Check, check_database
from vectorforge.cli.session import CommandContext, ignored_variables, session_command, unavailable_default
from vectorforge.cli.terminal import ExitCode
from vectorforge.config import LLMSettings, RerankSettings, VectorForgeConfig
from vectorforge.embedding.registry import EMBEDDING_SPECS, EmbeddingProviderRegistry
from vectorforge.errors import ConfigurationError, EmbeddingDimensionError, VectorForgeError
from vectorforge.extras import EXTRAS, how_to_install
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.local.laptop import default_data_dir
from vectorforge.vendors.credentials import CredentialStore, find_credentials

_with_aws = partial(typer.Option, rich_help_panel="With --aws")

_WITHOUT = {
    "local": "no embedded database and no local embedding model",
    "ingest": "no PDF, DOCX, RTF or HTML, no front matter, no languages, and no chunking",
    "ocr": "no text from scans without tesseract, and from images without tesseract and Pillow",
}
_TYPICAL_CHUNK = "A reranker reads the query and each chunk together. " * 15
_SEE_PROVIDERS = "See docs/use/providers.md."
_CORRECT_DEFAULT = "Correct it; until then another registered provider is used."
_LOW_BYTES, _TOO_LOW_BYTES = 1024**3, 200 * 1024**2


@session_command
def doctor(
    context: CommandContext,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port for `vectorforge up`.")] = 8000,
    aws: Annotated[
        bool,
        typer.Option("--aws", help="Check an AWS account before a deployment, not this laptop's service."),
    ] = False,
    stage: Annotated[str, _with_aws(help="Stage that is going to be deployed.", metavar="NAME")] = "dev",
    region: Annotated[
        str | None,
        _with_aws(
            help="Region to deploy to.",
            metavar="NAME",
            show_default="AWS_REGION, AWS_DEFAULT_REGION or the profile's",
        ),
    ] = None,
    assembly: Annotated[
        Path | None,
        _with_aws(
            help="Output of `make synth`; decides which quotas are checked.",
            show_default="cdk.out of this clone",
        ),
    ] = None,
) -> None:
    """Check this machine and the settings, and print a remedy for each problem.

    Changes no documents and creates no database. Exits with 1 when a check
    fails; warnings do not count. Keys are never printed. With --aws it checks
    instead whether the stage can be deployed with the credentials of this
    shell, and changes nothing in the account.

    [bold]Examples[/bold]

        vectorforge doctor --json | jq '.checks[] | select(.status != "ok")'

        vectorforge doctor --aws --stage dev --region eu-central-1
    """
    if aws:
        raise typer.Exit(_check_account(stage, region, assembly, json_output=context.terminal.json_output))
    checks = []
    for check in run_checks(context.data_dir, port):
        checks.append(check)
        if not context.terminal.json_output:
            check.print(context.terminal)
    failed = sum(check.status == "fail" for check in checks)
    if context.terminal.json_output:
        context.terminal.json({"ok": not failed, "checks": checks})
    elif failed:
        context.terminal.line(f"{failed} of {len(checks)} checks failed.", style="bold red")
    if failed:
        raise typer.Exit(ExitCode.INCOMPLETE)


def _check_account(stage: str, region: str | None, assembly: Path | None, *, json_output: bool) -> int:
    """Run ``python -m infra.doctor`` of the checkout, which deploys; return its exit code."""
    here = Path.cwd()
    candidates = (here, *here.parents, *Path(vectorforge.__file__).parents)
    checkout = next((one for one in candidates if (one / "infra" / "doctor" / "__main__.py").is_file()), None)
    if checkout is None:
        raise ConfigurationError(
            "--aws needs a checkout of VectorForge, which holds infra/: clone it, and run the command there."
        )
    arguments = ["--stage", stage, *(["--region", region] if region else [])]
    arguments += [*(["--assembly", str(assembly)] if assembly else []), *(["--json"] if json_output else [])]
    paths = [str(checkout), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(  # noqa: S603 - fixed words and the options of this command
        [sys.executable, "-m", "infra.doctor", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        check=False,
    ).returncode


def run_checks(data_dir: Path | None, port: int) -> Iterator[Check]:
    """Run every check, and yield its result."""
    yield Check("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield from _extras()
    yield _disk(data_dir or default_data_dir())
    yield _port(port)
    try:
        config = VectorForgeConfig.from_environment()
    except ConfigurationError as exc:
        yield Check("settings", "fail", exc.message, "Correct the variable.")
        return
    yield Check("settings", "ok", "all VECTORFORGE_* variables parse")
    for name, remedy in ignored_variables():
        yield Check("settings", "warn", f"{name} is not a setting and is ignored", remedy)
    store = credential_store(config)
    yield (keys := _keys(config, store))
    registry = EmbeddingProviderRegistry()
    if keys.status != "fail":  # the others could not read them either
        yield asyncio.run(_embedding(registry, config, store))
        yield asyncio.run(_models(config, store))
    if config.rerank.rerank_model_path is not None:
        yield asyncio.run(_reranker(config.rerank.rerank_model_path, config.rerank))
    if store is not None:
        store.close()
    yield from check_database(config, data_dir, registry)


def _remedy(error: VectorForgeError, otherwise: str) -> str:
    setting = error.setting if isinstance(error, ConfigurationError) else None
    return f"Check {setting}." if setting else otherwise


def _extras() -> Iterator[Check]:
    for extra, without in _WITHOUT.items():
        missing = [name for name in EXTRAS[extra] if importlib.util.find_spec(name) is None]
        if missing:
            detail = f"{', '.join(missing)} not installed: {without}"
            yield Check(f"[{extra}]", "warn", detail, how_to_install(extra))
        else:
            yield Check(f"[{extra}]", "ok", "installed")


def _disk(folder: Path) -> Check:
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        detail = f"{folder} cannot be written to"
        return Check("disk", "fail", detail, "Choose another folder with --data-dir.")
    free = shutil.disk_usage(existing).free
    detail = f"{free / 1024**3:.1f} GiB free at {folder}"
    if free < _TOO_LOW_BYTES:
        return Check("disk", "fail", detail, "Free disk space, or choose another folder with --data-dir.")
    if free < _LOW_BYTES:
        return Check("disk", "warn", detail, "Free disk space before a large ingestion.")
    return Check("disk", "ok", detail)


def _port(port: int) -> Check:
    try:
        bind("127.0.0.1", port).close()
    except ConfigurationError:
        remedy = "`vectorforge up` may be running already; otherwise choose another --port."
        return Check("port", "warn", f"{port} is in use", remedy)
    return Check("port", "ok", f"{port} is free")


def _keys(config: VectorForgeConfig, store: CredentialStore | None) -> Check:
    settings = {
        "embedding_api_key": config.embedding.embedding_api_key,
        "rerank_api_key": config.rerank.rerank_api_key,
    }
    names = (name for name in LLMSettings.model_fields if name.endswith(("_api_key", "_token")))
    settings |= {name: getattr(config.llm, name) for name in names}
    try:
        credentials = {name: find_credentials(name, value, store) for name, value in settings.items()}
    except VectorForgeError as exc:
        return Check("keys", "fail", exc.message, "See docs/operate/secrets.md for permissions and format.")
    origins = [f"{name} from {key.origin}" for name, key in sorted(credentials.items()) if key is not None]
    return Check("keys", "ok", ", ".join(origins) or "none set; the local model needs none")


async def _embedding(
    registry: EmbeddingProviderRegistry, config: VectorForgeConfig, store: CredentialStore | None
) -> Check:
    """Fill the registry, and embed a query."""
    try:
        registry.auto_discover(config, store=store)
        provider = registry.get_default()
        started = time.perf_counter()
        vector = await provider.embed_query("Is the embedding model ready?")
    except VectorForgeError as exc:
        name = registry.get_default().name if registry.list_providers() else ""
        of_length = isinstance(exc, EmbeddingDimensionError)
        variables = (
            spec.dimension_variables if of_length else [spec.variable]
            for spec in EMBEDDING_SPECS
            if spec.name == name
        )
        check = next((f"Check {' and '.join(names)}. " for names in variables), "")
        return Check("embedding", "fail", exc.message, _remedy(exc, f"{check}{_SEE_PROVIDERS}"))
    finally:
        await registry.aclose()
    if note := unavailable_default(config.embedding, registry):
        return Check("embedding", "warn", note, _CORRECT_DEFAULT)
    elapsed_ms = (time.perf_counter() - started) * 1000
    name = f"{provider.name}/{provider.default_model}"
    return Check(
        "embedding", "ok", f"{name}, {len(vector)} dimensions, first vector after {elapsed_ms:.0f} ms"
    )


async def _reranker(folder: Path, settings: RerankSettings) -> Check:
    """Load the local reranker, and score as many typical chunks as a query has."""
    from vectorforge.retriever.onnx_rerank import OnnxReranker

    count, limit_ms = settings.rerank_candidates, settings.timeout_s * 1000
    try:
        reranker = OnnxReranker(folder)
        await reranker.preload()
        started = time.perf_counter()
        await reranker.scores("Is the reranker ready?", [_TYPICAL_CHUNK] * count, timeout_s=60)
        await reranker.aclose()
    except VectorForgeError as exc:
        return Check("reranker", "fail", exc.message, _remedy(exc, "See docs/use/reranking.md."))
    elapsed_ms = (time.perf_counter() - started) * 1000
    detail = f"{reranker.identity}, {count} chunks in {elapsed_ms:.0f} ms"
    if elapsed_ms > limit_ms:
        remedy = (
            "Use a smaller model, fewer VECTORFORGE_RERANK_CANDIDATES or more VECTORFORGE_RERANK_TIMEOUT_S."
        )
        return Check("reranker", "warn", f"{detail}; the limit is {limit_ms:.0f} ms", remedy)
    return Check("reranker", "ok", detail)


async def _models(config: VectorForgeConfig, store: CredentialStore | None) -> Check:
    registry = LLMProviderRegistry()
    try:
        registry.auto_discover(config, store=store)
        names = registry.list_providers()
    except VectorForgeError as exc:
        return Check("models", "fail", exc.message, _remedy(exc, _SEE_PROVIDERS))
    finally:
        await registry.aclose()
    note = unavailable_default(config.llm, registry)
    if note and config.llm.default_provider != "extractive":
        return Check("models", "warn", note, _CORRECT_DEFAULT)
    if names:
        return Check("models", "ok", f"credentials for {', '.join(names)} (not verified)")
    return Check(
        "models",
        "warn",
        "no credentials; answers are quoted from the documents",
        "Set VECTORFORGE_OPENAI_API_KEY, VECTORFORGE_ANTHROPIC_API_KEY or another provider's key to "
        "generate them with a model.",
    )
