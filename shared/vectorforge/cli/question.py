"""What the user asks, as typed or piped."""

import json
import sys
from typing import Any, Literal
from uuid import UUID

from vectorforge.errors import InvalidInputError

_MAX_STDIN_CHARS = 1_000_000


def read_question(argument: str) -> str:
    """The question; ``-`` reads it from stdin.

    Raises:
        InvalidInputError: There is none, or stdin holds more than a million characters.
    """
    if argument != "-":
        text = argument
    else:
        text = sys.stdin.read(_MAX_STDIN_CHARS + 1)
        if len(text) > _MAX_STDIN_CHARS:
            raise InvalidInputError(
                f"QUESTION on stdin is longer than {_MAX_STDIN_CHARS:,} characters.", field="QUESTION"
            )
    if not text.strip():
        raise InvalidInputError("QUESTION is empty.", field="QUESTION")
    return text.strip()


def conversation_id(text: str | None) -> UUID | Literal["new"] | None:
    """The conversation that ``--conversation`` names; "new" for one to be begun.

    Raises:
        InvalidInputError: It is neither an id nor "new".
    """
    if text is None or text == "new":
        return "new" if text else None
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInputError(
            f"--conversation must be an id or new, not {text[:100]!r}.", field="--conversation"
        ) from None


def parse_filter(text: str | None) -> dict[str, Any] | None:
    """The metadata filter, as the HTTP API takes it.

    Raises:
        InvalidInputError: The text is no JSON object.
    """
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidInputError('--filter must be a JSON object, e.g. \'{"lang": "en"}\'.', field="--filter")
    return value


def parse_metadata(pairs: list[str]) -> dict[str, str]:
    """``key=value`` pairs as metadata; the values stay text.

    Raises:
        InvalidInputError: A pair has no key or no "=".
    """
    metadata = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not (key.strip() and separator):
            raise InvalidInputError(f"--metadata must look like key=value, not {pair!r}.", field="--metadata")
        metadata[key.strip()] = value
    return metadata
