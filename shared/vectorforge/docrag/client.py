"""OpenAI's official client, with the key and the address that the application uses.

An application opened for an engine, in a thread of its own.
"""

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from vectorforge.bootstrap import Application
from vectorforge.client import open_migrated
from vectorforge.config import VectorForgeConfig
from vectorforge.docrag.config import Config
from vectorforge.docrag.store import DocumentStore
from vectorforge.errors import ConfigurationError
from vectorforge.threads import LoopThread
from vectorforge.vendors.accounts import OPENAI_BASE_URL
from vectorforge.vendors.credentials import find_credentials

if TYPE_CHECKING:
    from openai import OpenAI


async def openai_client(application: Application) -> "OpenAI":
    """Make a synchronous client, to be closed; connects to nothing.

    It does not retry by itself. The package is imported here, since no query needs it.

    Raises:
        ConfigurationError: There is no key.
        SecretsUnavailableError: The key is stored elsewhere and cannot be read now.
    """
    settings = application.config.llm
    credentials = find_credentials("openai_api_key", settings.openai_api_key, application.credential_store)
    if credentials is None:
        raise ConfigurationError(
            "There is no OpenAI key: pass Config(OPENAI_API_KEY=...) or set VECTORFORGE_OPENAI_API_KEY."
        )
    from openai import OpenAI

    return OpenAI(
        api_key=(await credentials.current()).get_secret_value(),
        base_url=settings.openai_base_url or OPENAI_BASE_URL,
        organization=settings.openai_org_id,
        timeout=settings.llm_timeout_s,
        max_retries=0,
    )


def build_application(config: Config, stack: ExitStack) -> tuple[Application, str | None]:
    """Build the application that the environment and ``config`` describe.

    Args:
        config: Goes over the environment.
        stack: Stops the embedded PostgreSQL, which is started without a database URL, when it is closed.

    Returns:
        The application, not open yet, and the connection string to migrate the embedded database by.
    """
    from vectorforge.local.laptop import local_setup

    setup = stack.enter_context(local_setup(config.over(VectorForgeConfig.from_environment())))
    return Application.build(setup.config), setup.migrator_url if setup.embedded else None


def open_in_thread(application: Application, store: DocumentStore, migrator_url: str | None) -> LoopThread:
    """Open the application; closing the thread closes it.

    Args:
        application: Not open yet.
        store: Of the engine; a collection of another embedding model than the settings' is warned about.
        migrator_url: The database is migrated by this first; None: it is up to date.

    Raises:
        DatabaseUnavailableError: The database does not answer.
    """
    return LoopThread(_prepared(application, store, migrator_url), name="RAGEngine")


@asynccontextmanager
async def _prepared(
    application: Application, store: DocumentStore, migrator_url: str | None
) -> AsyncIterator[None]:
    async with open_migrated(application, migrator_url):
        await store.warn_of_other_model(application.embedding_registry.get_default())
        yield
