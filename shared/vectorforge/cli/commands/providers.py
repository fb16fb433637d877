"""``vectorforge providers``."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import typer

from vectorforge.bootstrap import credential_store
from vectorforge.cli.session import CommandContext, offline_command
from vectorforge.cli.terminal import ExitCode
from vectorforge.config import VectorForgeConfig
from vectorforge.deadline import Deadline
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.embedding.registry import EMBEDDING_SPECS, EmbeddingProviderRegistry
from vectorforge.errors import InvalidInputError, VectorForgeError
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.providers.extractive import ExtractiveProvider
from vectorforge.llm.registry import PROVIDER_SPECS, LLMProviderRegistry
from vectorforge.vendors.accounts import ProviderSpec, unknown_provider

app = typer.Typer(
    no_args_is_help=True,
    help="Show the providers for answers and embeddings, their models and their status.",
)

T = TypeVar("T")

_CHECK_TIMEOUT_S = 20.0
_SPECS: tuple[ProviderSpec[Any], ...] = (*PROVIDER_SPECS, *EMBEDDING_SPECS)


@dataclass(frozen=True, slots=True)
class Providers:
    """Providers that the settings of this machine register; needs no database."""

    llm: LLMProviderRegistry
    embedding: EmbeddingProviderRegistry


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of checking one provider."""

    kind: str
    name: str
    ok: bool
    detail: str


@app.command("list")
@offline_command
def list_providers(context: CommandContext) -> None:
    """List the registered providers, and how to register the others. Sends no request."""
    from vectorforge.api.native.server import ProvidersResponse

    async def work(providers: Providers) -> ProvidersResponse:
        return ProvidersResponse.of(providers.llm, providers.embedding)

    providers = _run(work)
    missing = _missing({row.name for row in providers.llm}, {row.name for row in providers.embedding})
    if context.terminal.json_output:
        context.terminal.json({**providers.model_dump(mode="json"), "not_registered": missing})
        return
    rows = [
        ("answers", row.name, _yes(row.is_default), row.default_model, ", ".join(row.capabilities))
        for row in providers.llm
    ]
    rows += [
        ("embeddings", row.name, _yes(row.is_default), row.default_model, f"{row.dimension} dimensions")
        for row in providers.embedding
    ]
    context.terminal.table(["For", "Name", "Default", "Model", "Can"], rows)
    context.terminal.note("Requests that name no provider use the default. More can be registered:")
    for one in missing:
        context.terminal.note(f"  {one['name']} ({one['for']}): set {one['set']}")


@app.command()
@offline_command
def models(
    context: CommandContext,
    name: Annotated[str, typer.Argument(help="Name of a provider of answers, e.g. openai.")],
) -> None:
    """List the models that a provider offers for your key.

    [bold]Example[/bold]

        vectorforge providers models anthropic
    """

    async def work(providers: Providers) -> tuple[str, list[str]]:
        if name not in providers.llm.list_providers():
            raise InvalidInputError(providers.llm.unknown(name), field="NAME")
        provider = providers.llm.get(name)
        return provider.default_model, await provider.list_models()

    default, offered = _run(work)
    if context.terminal.json_output:
        context.terminal.json({"provider": name, "default_model": default, "models": offered})
        return
    for model in offered:
        context.terminal.line(f"{model}  (default)" if model == default else model)
    if default not in offered:
        context.terminal.warn(f"The default model {default} is not in this list.")


@app.command()
@offline_command
def check(
    context: CommandContext,
    name: Annotated[str | None, typer.Argument(help="Only this provider.", show_default="all")] = None,
) -> None:
    """Check the credentials of each provider by requesting its models, or one vector.

    Exit code 1 when a check fails.
    """

    async def work(providers: Providers) -> list[Checked]:
        llm, embedding = providers.llm, providers.embedding
        writers, embedders = llm.list_providers(), embedding.list_providers()
        if name is not None and name not in (*writers, *embedders):
            registered = dict.fromkeys([*writers, *embedders])
            raise InvalidInputError(
                unknown_provider("LLM or embedding", name, registered, _SPECS), field="NAME"
            )
        return await asyncio.gather(
            *(_checked(llm.get(one)) for one in writers if name in (None, one)),
            *(_checked_embedder(embedding.get(one)) for one in embedders if name in (None, one)),
        )

    results = _run(work)
    if context.terminal.json_output:
        context.terminal.json({"providers": results, "ok": all(one.ok for one in results)})
    else:
        rows = [(one.kind, one.name, "ok" if one.ok else "fail", one.detail) for one in results]
        context.terminal.table(["For", "Name", "Status", "Detail"], rows)
    if not all(one.ok for one in results):
        raise typer.Exit(ExitCode.INCOMPLETE)


async def _checked(provider: BaseLLMProvider) -> Checked:
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT_S):
            if not await provider.validate_credentials():
                return Checked("answers", provider.name, False, "The credentials were rejected.")
            offered = await provider.list_models()
    except TimeoutError:
        return Checked("answers", provider.name, False, f"No answer within {_CHECK_TIMEOUT_S:g} s")
    except VectorForgeError as exc:
        return Checked("answers", provider.name, False, exc.message)
    known = provider.default_model in offered
    detail = "" if known else "; the default model is not among them"
    return Checked("answers", provider.name, True, f"{provider.default_model}, {len(offered)} models{detail}")


async def _checked_embedder(provider: EmbeddingProvider) -> Checked:
    try:
        vector = await provider.embed_query("Is it ready?", deadline=Deadline.after(_CHECK_TIMEOUT_S))
    except VectorForgeError as exc:
        return Checked("embeddings", provider.name, False, exc.message)
    return Checked("embeddings", provider.name, True, f"{provider.default_model}, {len(vector)} dimensions")


def _run(work: Callable[[Providers], Awaitable[T]]) -> T:
    async def run() -> T:
        config = VectorForgeConfig.from_environment()
        store = credential_store(config)
        llm, embedding = LLMProviderRegistry(), EmbeddingProviderRegistry()
        try:
            embedding.auto_discover(config, store=store)
            llm.auto_discover(config, store=store, fallback=ExtractiveProvider())
            return await work(Providers(llm, embedding))
        finally:
            await llm.aclose()
            await embedding.aclose()
            if store is not None:
                store.close()

    return asyncio.run(run())


def _missing(llm: set[str], embedding: set[str]) -> list[dict[str, str]]:
    """List the providers that are not registered, with the variable that registers each."""
    rows = [("answers", spec.name, spec.variable, llm) for spec in PROVIDER_SPECS]
    rows += [("embeddings", spec.name, spec.variable, embedding) for spec in EMBEDDING_SPECS]
    return [
        {"for": kind, "name": name, "set": variable}
        for kind, name, variable, registered in rows
        if name not in registered
    ]


def _yes(value: bool) -> str:
    return "yes" if value else ""
