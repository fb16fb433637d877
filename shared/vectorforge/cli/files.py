"""Which files ``vectorforge ingest`` reads, and what they are called."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePath

from vectorforge.errors import InvalidInputError

_UNREADABLE = frozenset({
    ".7z", ".a", ".avi", ".bin", ".bmp", ".bz2", ".class", ".db", ".dll", ".dylib", ".ear", ".eot",
    ".exe", ".flac", ".gif", ".gz", ".ico", ".iso", ".jar", ".jpeg", ".jpg", ".lock", ".mkv", ".mo",
    ".mov", ".mp3", ".mp4", ".mpeg", ".npy", ".npz", ".o", ".obj", ".odp", ".ods", ".odt", ".ogg",
    ".onnx", ".otf", ".parquet", ".pickle", ".pkl", ".png", ".ppt", ".pptx", ".pyc", ".pyd", ".rar",
    ".safetensors", ".so", ".sqlite", ".sqlite3", ".svg", ".tar", ".tgz", ".tif", ".tiff", ".ttf",
    ".wasm", ".wav", ".webm", ".webp", ".whl", ".woff", ".woff2", ".xls", ".xlsx", ".xz", ".zip",
    ".zst",
})  # fmt: skip
"""Extensions of files that hold no text this project can read; a folder is walked past them."""

_NEVER_ENTERED = frozenset({"__pycache__", "node_modules", "venv"})


def find_files(paths: Iterable[Path], *, glob: str | None = None) -> list[Path]:
    """The files behind the paths, in order, each once.

    A file named on the command line is taken as it is. Folders are walked in sorted order, without hidden
    files and folders, symbolic links to folders, and files whose extension says that they hold no text.

    Args:
        paths: Files and folders.
        glob: Take only files whose name, or path below the folder, matches (``*.md``, ``guide/**``).

    Raises:
        InvalidInputError: A path does not exist.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            found.update((file, None) for file in _walk(path) if _wanted(file, path, glob))
        elif path.is_file():
            found[path] = None
        else:
            raise InvalidInputError(f"{path} does not exist or is not a file or folder.", field="PATH")
    return list(found)


def _walk(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.name in _NEVER_ENTERED:
            continue
        if entry.is_dir():
            if not entry.is_symlink():  # a link may lead in a circle or out of the folder
                yield from _walk(entry)
        elif entry.is_file():
            yield entry


def _wanted(file: Path, folder: Path, glob: str | None) -> bool:
    if glob is not None:
        return fnmatch(file.name, glob) or fnmatch(file.relative_to(folder).as_posix(), glob)
    return file.suffix.lower() not in _UNREADABLE


def source_name(file: Path) -> str:
    """What a file is called in its collection: its absolute path, without symbolic links.

    So the same file is replaced when it is ingested again from elsewhere, and two files of the same name in
    different folders never replace each other.
    """
    return file.resolve().as_posix()


def shown_source(source: str) -> str:
    """A source for people: files below the working directory from there, as ``./docs/x.md``."""
    try:
        return f"./{PurePath(source).relative_to(Path.cwd()).as_posix()}"
    except ValueError:
        return source
