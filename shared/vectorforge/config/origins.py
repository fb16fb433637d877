"""Origins of web pages, as an operator writes them: exact, any subdomain, or all."""

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, BeforeValidator
from pydantic_settings import NoDecode

ANY_ORIGIN: Final = "*"
MAX_ORIGINS: Final = 100

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_ORIGIN = re.compile(
    rf"(?P<scheme>https?)://"
    rf"(?P<host>\*(?:\.{_LABEL}){{2,}}|{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:.]{{2,45}}\])"
    r"(?::(?P<port>[1-9][0-9]{0,4}))?"
)
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
_MAX_CHARS = 267
"""``https://``, a host name of 253 characters, ``:65535``."""
_WANTED = "https://app.example.com or https://*.example.com: scheme, host and optional port, without a path"


def read_origins(value: Any) -> Any:
    """Split a setting into its entries: separated by commas, or a JSON list.

    Raises:
        ValueError: It begins like a JSON list and is none; the text does not hold the value.
    """
    if not isinstance(value, str):
        return value
    if not value.lstrip().startswith("["):
        return [entry.strip() for entry in value.split(",")]
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError("must be origins separated by commas, or a JSON list of them") from None


def checked_origins(origins: Sequence[str]) -> tuple[str, ...]:
    """The origins as browsers send them: lower case, without a scheme's default port, each once.

    Args:
        origins: At most ``MAX_ORIGINS``; or ``ANY_ORIGIN`` alone.

    Raises:
        ValueError: An entry is no origin; the text names its position.
    """
    if len(origins) > MAX_ORIGINS:
        raise ValueError(f"must have at most {MAX_ORIGINS} origins")
    if ANY_ORIGIN in origins and len(set(origins)) > 1:
        raise ValueError(f"must be {ANY_ORIGIN} alone, or a list of origins without it")
    return tuple(dict.fromkeys(_checked(origin, number) for number, origin in enumerate(origins, start=1)))


def origins_pattern(origins: Sequence[str]) -> str:
    """A regular expression that matches the whole of each origin that is meant; linear in its input.

    Args:
        origins: From ``checked_origins``; of ``ANY_ORIGIN`` everything is matched, of none nothing.
    """
    if ANY_ORIGIN in origins:
        return r".+"
    return "|".join(map(_pattern, origins)) or r"(?!)"


def _checked(origin: str, number: int) -> str:
    if origin == ANY_ORIGIN:
        return origin
    lowered = origin.lower()
    found = _ORIGIN.fullmatch(lowered) if len(origin) <= _MAX_CHARS and origin.isascii() else None
    if found is None or int(found["port"] or 0) > 65_535:
        raise ValueError(f"entry {number} must be an origin such as {_WANTED}")
    scheme, host, port = found["scheme"], found["host"], found["port"]
    return f"{scheme}://{host}" + (f":{port}" if port not in (None, _DEFAULT_PORTS[scheme]) else "")


def _pattern(origin: str) -> str:
    scheme, wildcard, rest = origin.partition("://*.")
    return f"{scheme}://(?:{_LABEL}\\.)+{re.escape(rest)}" if wildcard else re.escape(origin)


Origins: TypeAlias = Annotated[
    tuple[str, ...], NoDecode, BeforeValidator(read_origins), AfterValidator(checked_origins)
]
