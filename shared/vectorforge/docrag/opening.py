"""An application opened for an engine, in a thread of its own."""

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from vectorforge.bootstrap import Application
from vectorforge.config import VectorForgeConfig
from vectorforge.docrag.config import Config
from vectorforge.docrag.store import DocumentStore
from vectorforge.loop_thread import LoopThread
from vectorforge.rag_service import open_migrated


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
