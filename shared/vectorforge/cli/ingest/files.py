"""Files that ``vectorforge ingest`` reads, and their sources."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from vectorforge.cli.options import source_name
from vectorforge.errors import InvalidInputError
from vectorforge.ingestion.extract import media

_NEVER_ENTERED = frozenset({"__pycache__", "node_modules", "venv"})


class SourceFile(NamedTuple):
    """A file to ingest."""

    source: str
    path: Path
    name: str | None = None
    """Its path relative to the folder that was given: the title of a document that has none."""


class SkippedFile(NamedTuple):
    """A file or folder that is not read, and why."""

    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """Files behind the paths of a command line, in order, each once."""

    files: list[SourceFile]
    skipped: list[SkippedFile]


def find_files(paths: Iterable[Path], *, glob: str | None = None, images: bool = False) -> FoundFiles:
    """Find the files behind paths.

    A file named on the command line is taken as it is. Folders are walked in sorted order. Skipped are hidden
    files and folders, folders of installed packages, symbolic links to folders, and files whose extension
    says that they cannot be read.

    Args:
        paths: Files and folders.
        glob: Take only files whose name, or path below the folder, matches (``*.md``, ``guide/**``); what
            does not match is not reported as skipped.
        images: Take images, which only OCR reads.

    Raises:
        InvalidInputError: A path does not exist, cannot be opened, or is a web address.
    """
    files: dict[str, SourceFile] = {}
    skipped: dict[Path, str] = {}
    for path in paths:
        if _is_folder(path):
            for entry, reason in _walk(path):
                reason = reason or _unwanted(entry, glob, images=images)
                name = entry.relative_to(path).as_posix()
                if reason:
                    skipped[entry.absolute()] = reason
                elif glob is None or fnmatch(entry.name, glob) or fnmatch(name, glob):
                    files.setdefault(source_name(entry), SourceFile(source_name(entry), entry, name))
        else:
            files.setdefault(source_name(path), SourceFile(source_name(path), path, path.name))
    left_out = [SkippedFile(entry.as_posix(), reason) for entry, reason in skipped.items()]
    return FoundFiles([*files.values()], [file for file in left_out if file.source not in files])


def _is_folder(path: Path) -> bool:
    """Return True for a folder and False for a file; raises as ``find_files`` does for anything else."""
    try:
        if path.is_dir() or path.is_file():
            return path.is_dir()
    except OSError as exc:
        raise InvalidInputError(f"{path} cannot be opened ({type(exc).__name__}).", field="PATH") from exc
    if path.parts[:1] in (("http:",), ("https:",)):
        message = "Web addresses are not fetched. Download the page with `curl -O`, then ingest the file."
        raise InvalidInputError(message, field="PATH")
    raise InvalidInputError(f"{path} does not exist or is not a file or folder.", field="PATH")


def _walk(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield files, and what is not entered or opened with the reason; an empty reason otherwise."""
    try:
        for entry in sorted(folder.iterdir()):
            if entry.name.startswith("."):
                yield entry, "hidden"
            elif entry.name in _NEVER_ENTERED and entry.is_dir():
                yield entry, "folder of installed or compiled code"
            elif entry.is_dir() and not entry.is_symlink():
                yield from _walk(entry)
            elif entry.is_dir():
                yield entry, "symbolic link to a folder"  # it may lead in a circle or out of the folder
            elif entry.is_file():
                yield entry, ""
            else:
                yield entry, "broken symbolic link" if entry.is_symlink() else "not a regular file"
    except OSError as exc:
        yield folder, f"cannot be opened ({type(exc).__name__})"


def _unwanted(file: Path, glob: str | None, *, images: bool) -> str:
    """Return why a file of a folder is skipped; empty if it is read, as every match of a pattern is."""
    extension = file.suffix.lower()
    if glob is not None or extension not in media.REFUSED.keys() | media.UNREADABLE:
        return ""
    if media.EXTENSIONS.get(extension) in media.IMAGES:
        return "" if images else "images are read with --ocr only"
    return f"{extension} files cannot be read. {media.REFUSED.get(extension, '')}".rstrip()
