"""The passwords that the login roles get when the schema is migrated."""

from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from vectorforge.config import DatabaseSettings
from vectorforge.errors import InvalidInputError


def login_passwords(settings: DatabaseSettings, roles: tuple[str, ...]) -> dict[str, SecretStr]:
    """The passwords that our own login roles have in the configured URLs; other roles are not ours to change.

    Args:
        settings: With the URLs.
        roles: Our login roles: ``login_roles.LOGIN_ROLES``.

    Raises:
        InvalidInputError: A setting is no URL.
    """
    urls = {
        "VECTORFORGE_DATABASE_URL": settings.database_url,
        "VECTORFORGE_LOG_WRITER_DATABASE_URL": settings.log_writer_database_url,
        "VECTORFORGE_ERASER_DATABASE_URL": settings.eraser_database_url,
    }
    passwords = {}
    for variable, url in urls.items():
        if url is None:
            continue
        try:
            parts = urlsplit(url.get_secret_value())
        except ValueError as exc:
            raise InvalidInputError(f"{variable} is not a URL.", field=variable) from exc
        if parts.username in roles and parts.password:
            passwords[parts.username] = SecretStr(unquote(parts.password))
    return passwords
