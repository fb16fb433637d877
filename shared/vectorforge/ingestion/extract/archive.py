"""ZIP archives, within bounds against bombs."""

import io
import zipfile

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.decode import clean

_MAX_UNCOMPRESSED_BYTES = 200 * 1024 * 1024
_MAX_MEMBERS = 10_000
_ENCRYPTED = 0x1


def open_archive(content: bytes) -> zipfile.ZipFile:
    """Open a ZIP file within limits: zipfile never inflates a member beyond the size its directory declares.

    Raises:
        ExtractionError: ``unreadable``, or ``too_large``: over 200 MB unpacked or 10,000 members.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError) as exc:
        raise ExtractionError("The file is damaged and cannot be unpacked.") from exc
    members = archive.infolist()
    if len(members) > _MAX_MEMBERS or sum(member.file_size for member in members) > _MAX_UNCOMPRESSED_BYTES:
        limit = _MAX_UNCOMPRESSED_BYTES // 1024 // 1024
        raise ExtractionError(
            f"Unpacked, the document is larger than {limit} MB or has over {_MAX_MEMBERS:,} parts.",
            reason="too_large",
        )
    return archive


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return a member's bytes.

    Raises:
        ExtractionError: ``unreadable``: missing or damaged; ``encrypted``.
    """
    try:
        info = archive.getinfo(name)
        if info.flag_bits & _ENCRYPTED:
            raise ExtractionError("The document is protected by a password.", reason="encrypted")
        return archive.read(info)
    except ExtractionError:
        raise
    except KeyError as exc:
        raise ExtractionError(f"A part of the document is missing: {clean(name)[0][:100]}.") from exc
    except MemoryError:
        raise
    except Exception as exc:  # zlib, lzma, bz2 and zipfile raise many kinds
        raise ExtractionError("The document is damaged and cannot be read.") from exc
