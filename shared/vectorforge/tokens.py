"""How many tokens a text is, estimated without ever waiting for the network."""

import logging
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiktoken import Encoding

logger = logging.getLogger(__name__)

_FALLBACK_ENCODING = "o200k_base"


def estimate_tokens(text: str, model: str = "gpt-4") -> int:
    """Number of tokens of a text for a model.

    Exact (tiktoken) when the model's table lies on this machine, else ``len(text) // 4``. Tables are
    never downloaded here: tiktoken would block the first request on the network
    (https://github.com/openai/tiktoken/issues/232). Put them where ``TIKTOKEN_CACHE_DIR`` points.
    """
    encoding = _encoding(model)
    if encoding is None:
        return len(text) // 4
    return len(encoding.encode(text, disallowed_special=()))


@lru_cache(maxsize=64)
def _encoding(model: str) -> "Encoding | None":
    try:
        import tiktoken
    except ImportError:
        return None
    try:
        name = tiktoken.encoding_name_for_model(model)
    except KeyError:  # newer than the installed tiktoken, or another vendor's
        name = _FALLBACK_ENCODING
    return _load(name)


@lru_cache(maxsize=8)
def _load(name: str) -> "Encoding | None":
    if not _table_is_local(name):
        logger.info("No local tiktoken table for %s; counting len(text) // 4", name)
        return None
    import tiktoken

    try:
        return tiktoken.get_encoding(name)
    except Exception:  # noqa: BLE001 - see below
        # tiktoken raises whatever its download does; any failure means the estimate (a wrong table
        # deletes itself and downloads).
        logger.warning("The tiktoken table for %s does not load; counting len(text) // 4", name)
        return None


_TABLE_URL = "https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"


def _table_is_local(name: str) -> bool:
    """Whether tiktoken will find the table on disk: a file named sha1(URL) in its cache folder."""
    import hashlib
    import os
    import tempfile
    from pathlib import Path

    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    place = Path(folder) if folder else Path(tempfile.gettempdir()) / "data-gym-cache"
    key = hashlib.sha1(_TABLE_URL.format(name=name).encode(), usedforsecurity=False).hexdigest()
    return (place / key).is_file()
