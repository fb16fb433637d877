"""Token counts of texts, estimated without network access."""

import hashlib
import logging
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiktoken import Encoding

logger = logging.getLogger(__name__)

_FALLBACK_ENCODING = "o200k_base"

# From tiktoken_ext/openai_public.py: the table that an encoding is read from, and its sha256.
_P50K = ("p50k_base", "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069")
_O200K = ("o200k_base", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d")
_TABLES = {
    "r50k_base": ("r50k_base", "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"),
    "p50k_base": _P50K,
    "p50k_edit": _P50K,
    "cl100k_base": ("cl100k_base", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"),
    "o200k_base": _O200K,
    "o200k_harmony": _O200K,
}
_TABLE_URL = "https://openaipublic.blob.core.windows.net/encodings/{table}.tiktoken"

_BUNDLED = Path(__file__).resolve().parents[1] / "tiktoken_cache"
"""Tables in the bundle of a Lambda function (infra/bundling/bundle.py)."""


def estimate_tokens(
    text: str, model: str = "gpt-4", *, sample_chars: int | None = None, may_load: bool = True
) -> int:
    """Return the number of tokens of a text for a model.

    Exact (tiktoken) if the model's table is on this machine, else ``len(text) // 4``. Tables are never
    downloaded: tiktoken would block the first request on the network
    (https://github.com/openai/tiktoken/issues/232). Folders: ``TIKTOKEN_CACHE_DIR`` (default: the user's
    cache, which ``make run`` fills, and tiktoken's own) and next to this package.

    Args:
        text: Any text.
        model: Name of the model, of any vendor.
        sample_chars: Characters to count; the rest of a longer text is assumed to have as many tokens each. A
            million emoji take a second.
        may_load: Load the model's table if it is not in memory, with up to a second of CPU. Else another
            model's table counts, or ``len(text) // 4`` if none is loaded.
    """
    if sample_chars is not None and len(text) > sample_chars:
        return estimate_tokens(text[:sample_chars], model, may_load=may_load) * len(text) // sample_chars
    # a copy, since another thread may load a table meanwhile
    encoding = _encoding(model) if may_load else next(iter(list(_loaded.values())), None)
    if encoding is None:
        return len(text) // 4
    return len(encoding.encode_ordinary(text))


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


_loaded: "dict[str, Encoding]" = {}
"""Tables in memory, by name."""


@lru_cache(maxsize=8)
def _load(name: str) -> "Encoding | None":
    folder = _folder_with_table(name)
    if folder is None:
        logger.info("No local tiktoken table for %s; counting len(text) // 4", name)
        return None
    import tiktoken

    try:
        with _read_from(folder):
            _loaded[name] = tiktoken.get_encoding(name)
        return _loaded[name]
    except Exception:  # noqa: BLE001 - the estimate replaces any failure of tiktoken
        logger.warning("The tiktoken table for %s does not load; counting len(text) // 4", name)
        return None


def _folder_with_table(name: str) -> Path | None:
    """Return the folder from which tiktoken reads the table without network access.

    The file must be intact: tiktoken deletes one with another sha256, and downloads.
    """
    if name not in _TABLES:
        return None
    table, digest = _TABLES[name]
    key = hashlib.sha1(_TABLE_URL.format(table=table).encode(), usedforsecurity=False).hexdigest()
    for folder in _folders():
        try:
            content = (folder / key).read_bytes()
        except OSError:
            continue
        if hashlib.sha256(content).hexdigest() == digest:
            return folder
        logger.warning("The tiktoken table %s in %s is not the published one", table, folder)
    return None


def _folders() -> Iterator[Path]:
    chosen = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    if chosen:
        yield Path(chosen)
    yield _BUNDLED
    if not chosen:
        home = os.environ.get("XDG_CACHE_HOME")
        # where ``make run`` stores the tables (infra/bundling/token_tables.py)
        yield (Path(home) if home else Path.home() / ".cache") / "vectorforge" / "tiktoken"
        yield Path(tempfile.gettempdir()) / "data-gym-cache"


_environment = threading.Lock()


@contextmanager
def _read_from(folder: Path) -> Iterator[None]:
    """Make tiktoken read its tables from this folder; it has no argument for it."""
    with _environment:
        before = os.environ.get("TIKTOKEN_CACHE_DIR")
        os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
        try:
            yield
        finally:
            if before is None:
                del os.environ["TIKTOKEN_CACHE_DIR"]
            else:
                os.environ["TIKTOKEN_CACHE_DIR"] = before
