"""Decoding of bytes to text that PostgreSQL and JSON can store, with stable offsets, and of ZIP archives."""

import codecs
import io
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any
from unicodedata import normalize

from vectorforge.errors import ExtractionError

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")
_BOMS = (  # UTF-32 first: its little-endian mark begins with UTF-16's
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CHARACTER_SETS = re.compile(
    r"utf_?(8|16|32)(_[lb]e)?|(iso_?)?8859_\d+|latin_?1|(windows_?|cp)\d+j?|koi8_[rtu]|s(hift_?)?jis\w*|"
    r"iso_?2022_\w+|euc_?\w+|ks_c_5601\w*|gbk?|gb2312|gb18030|hz\w*|big5(hkscs)?|mac_?\w+|ascii|us_ascii|"
    r"tis_620"
)
_AS_BROWSERS = {  # https://encoding.spec.whatwg.org/
    "iso8859-1": "cp1252",
    "shift_jis": "cp932",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
}
_SCRIPTS = (
    ("euc_jp", range(0xA4, 0xA6), 0.2),  # kana
    ("cp932", range(0x82, 0x99), 0.8),  # kana and the usual kanji
    ("cp949", range(0xB0, 0xC9), 0.9),
    ("gb18030", range(0xB0, 0xD8), 0.8),
    ("cp950", range(0xA4, 0xC7), 0.9),
    ("cp1251", range(0xE0, 0x100), 0.8),  # small letters
    ("cp1256", range(0xC1, 0xEE), 0.9),
)
"""Encodings of other scripts than Latin, with the first bytes of the usual letters and their least share."""
_LEAST_LETTERS = 4
_SAMPLE_BYTES = 4096
_MAX_NAMED = 10
_MOST_CONTROL_SHARE = 0.1


def decode(content: bytes, declared: str | None = None) -> tuple[str, list[str]]:
    """Decode a text file.

    A byte order mark decides; then the declared character set, if the bytes fit it; then UTF-16 without
    a mark, if every second byte is NUL; then UTF-8; else UTF-8 with some broken bytes, an encoding of
    another script, or Windows-1252, whichever fits better.

    Returns:
        The cleaned text and one warning for each kind of guess or replacement, with its count.

    Raises:
        ExtractionError: ``undecodable``: it is not text in any of them.
    """
    text, warnings = _decode(content, declared)
    _check_is_text(text)
    text, replaced = clean(text)
    if replaced:
        warnings.append(replaced_warning(replaced))
    return normalize("NFC", without_invisible(text)), warnings


def replaced_warning(number: int, which: str = "that cannot be stored (NUL or lone surrogates)") -> str:
    """Return the warning about replaced characters."""
    return f"Replaced {number} character{'' if number == 1 else 's'} {which}."


def clean(text: str) -> tuple[str, int]:
    """Replace NUL and lone surrogates one for one, so that offsets stay valid; also return their number."""
    return _UNSTORABLE.subn(REPLACEMENT, text)


def without_invisible(text: str) -> str:
    """Remove soft hyphens and other characters without width, which cut the words of a search."""
    return text if text.isascii() else _INVISIBLE.sub("", text)


def composed(text: str) -> str:
    """Return the cleaned text in NFC, as queries are; some programs write "ü" as two characters."""
    return normalize("NFC", clean(text)[0])


def clean_json(value: Any) -> tuple[Any, int]:
    """Apply ``clean`` to every text and key of a JSON value."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        pairs = [(clean(str(key)), clean_json(item)) for key, item in value.items()]
        return {key: item for (key, _), (item, _) in pairs}, sum(a + b for (_, a), (_, b) in pairs)
    if isinstance(value, (list, tuple)):
        items = [clean_json(item) for item in value]
        return [item for item, _ in items], sum(count for _, count in items)
    return value, 0


def _decode(content: bytes, declared: str | None) -> tuple[str, list[str]]:
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            return _replacing(content[len(mark) :], encoding)
    for encoding in filter(None, (_known(declared), _utf16_without_mark(content), "utf-8")):
        try:
            return content.decode(encoding), []
        except UnicodeDecodeError:
            continue
    return _best_guess(content)


def _known(declared: str | None) -> str | None:
    """Return the name of a character set, None for Python's other codecs (idna, unicode_escape, ...)."""
    name = (declared or "").strip().strip("\"'").lower().replace("-", "_").replace(" ", "").removeprefix("x_")
    if not _CHARACTER_SETS.fullmatch(name):
        return None
    try:
        known = codecs.lookup(name).name
    except LookupError:
        return None
    return _AS_BROWSERS.get(known, known)


def _utf16_without_mark(content: bytes) -> str | None:
    """Detect UTF-16 of European text by the NUL in nearly every second byte."""
    sample = content[:_SAMPLE_BYTES]
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if len(content) % 2 or max(even, odd) * 4 < len(sample) or min(even, odd) * 10 > max(even, odd):
        return None
    return "utf-16-le" if odd > even else "utf-16-be"


def _best_guess(content: bytes) -> tuple[str, list[str]]:
    text, warnings = _replacing(content, "utf-8")
    broken = text.count(REPLACEMENT)
    intact = len(re.findall("[^\x00-\x7f]", text)) - broken
    if intact > broken:
        return text, warnings
    if encoding := _encoding_of_script(content):
        return content.decode(encoding), [f"The text is not UTF-8; read as {encoding}."]
    text, warnings = _replacing(content, "cp1252")
    return text, ["The text is not UTF-8; read as Windows-1252.", *warnings]


def _encoding_of_script(content: bytes) -> str | None:
    """Detect an encoding by its usual letters, if these are not few among Latin ones."""
    for encoding, usual, least in _SCRIPTS:
        try:
            sample = content.decode(encoding)[:_SAMPLE_BYTES]
        except UnicodeDecodeError:
            continue
        letters = [one.encode(encoding) for one in sample if one.isalpha()]
        others = [one for one in letters if one[0] > 0x7F]
        share = sum(one[0] in usual for one in others) / max(len(others), _LEAST_LETTERS)
        if share >= least and sum(map(len, others)) >= len(letters) - len(others):
            return encoding
    return None


def _replacing(content: bytes, encoding: str) -> tuple[str, list[str]]:
    text = content.decode(encoding, errors="replace")
    replaced = text.count(REPLACEMENT)
    if not replaced:
        return text, []
    return text, [replaced_warning(replaced, f"that cannot be decoded as {encoding}")]


def _check_is_text(text: str) -> None:
    """Reject binary data by its control characters: any bytes decode as Windows-1252."""
    sample = text[:_SAMPLE_BYTES]
    controls = len(re.findall("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f]", sample))
    if controls + sample.count(REPLACEMENT) > _MOST_CONTROL_SHARE * max(len(sample), 20):
        raise ExtractionError("The document is not text in any known encoding.", reason="undecodable")


def unread_warning(what: str, names: Sequence[str]) -> str:
    """Return the warning about parts that are not read, with the first of their names."""
    shown = ", ".join(clean(name)[0][:100] for name in names[:_MAX_NAMED])
    rest = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{what} are not read: {shown}{rest}."


_MAX_UNCOMPRESSED_BYTES = 200 * 1024 * 1024
_MAX_MEMBERS = 10_000
_ENCRYPTED = 0x1


def open_archive(content: bytes) -> zipfile.ZipFile:
    """Open a ZIP file within limits: zipfile never inflates a member beyond the size its directory declares.

    Raises:
        ExtractionError: ``empty``, ``unreadable``, or ``too_large``: over 200 MB unpacked or 10,000 members.
    """
    if not content:
        raise ExtractionError("The document is empty.", reason="empty")
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
    """Return a member's bytes; raises as ``open_member`` does."""
    with open_member(archive, name) as file:
        return file.read()


@contextmanager
def open_member(archive: zipfile.ZipFile, name: str) -> Iterator[IO[bytes]]:
    """Open a member to read it in blocks.

    Raises:
        ExtractionError: ``unreadable``: missing or damaged; ``encrypted``.
    """
    try:
        info = archive.getinfo(name)
        if info.flag_bits & _ENCRYPTED:
            raise ExtractionError("The document is protected by a password.", reason="encrypted")
        with archive.open(info) as file:
            yield file
    except (ExtractionError, MemoryError):
        raise
    except KeyError as exc:
        raise ExtractionError(f"A part of the document is missing: {clean(name)[0][:100]}.") from exc
    except Exception as exc:  # zlib, lzma, bz2 and zipfile raise many kinds
        raise ExtractionError("The document is damaged and cannot be read.") from exc
