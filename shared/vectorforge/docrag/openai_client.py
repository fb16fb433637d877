"""OpenAI's official client, with the key and the address that the application uses."""

from typing import TYPE_CHECKING

from vectorforge.bootstrap import Application
from vectorforge.credentials import find_credentials
from vectorforge.errors import ConfigurationError
from vectorforge.llm.providers.openai import DEFAULT_BASE_URL

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
        base_url=settings.openai_base_url or DEFAULT_BASE_URL,
        organization=settings.openai_org_id,
        timeout=settings.llm_timeout_s,
        max_retries=0,
    )
