"""MSG files of Outlook: a compound file with the streams of a message.

Formats: [MS-CFB] and [MS-OXMSG], https://learn.microsoft.com/openspecs/office_protocols/.
"""

import struct
from collections.abc import Mapping
from typing import Final, TypeAlias

Storage: TypeAlias = Mapping[str, "bytes | Storage"]

_SECTOR: Final = 512
_SHORT: Final = 4096
_END, _FREE, _FAT = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD
_TEXT, _BINARY = 0x001F, 0x0102


def compound_file(root: Storage) -> bytes:
    """Return a compound file; streams up to 4,096 bytes are in the stream of short ones, the root's."""
    entries: list[list[int | str | bytes]] = []  # name, type, right sibling, child, content
    _add(entries, "Root Entry", root, 5)
    sectors, short = list[bytes](), list[bytes]()
    fat, short_fat = list[int](), list[int]()
    starts: list[tuple[int, int]] = [(_END, 0)]
    for *_, content in entries[1:]:
        assert isinstance(content, bytes)
        if not content:
            starts.append((_END, 0))
        elif len(content) < _SHORT:
            starts.append((_put(short, short_fat, content, 64), len(content)))
        else:
            starts.append((_put(sectors, fat, content), len(content)))
    if short:
        starts[0] = _put(sectors, fat, b"".join(short)), 64 * len(short)
    short_fat_at = (
        _put(sectors, fat, struct.pack(f"<{len(short_fat)}I", *short_fat), pad=b"\xff") if short else _END
    )
    short_fat_size = -(-len(short_fat) * 4 // _SECTOR)
    directory = b"".join(_entry(entry, *start) for entry, start in zip(entries, starts, strict=True))
    directory_at = _put(sectors, fat, directory)
    fat_sectors = -(-(len(fat) + 8) * 4 // _SECTOR)
    fat_at = len(sectors)
    fat += [_FAT] * fat_sectors
    table = struct.pack(f"<{len(fat)}I", *fat).ljust(fat_sectors * _SECTOR, b"\xff")
    places = [*range(fat_at, fat_at + fat_sectors), *[_FREE] * (109 - fat_sectors)]
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16)
    numbers = (0, fat_sectors, directory_at, 0, _SHORT, short_fat_at, short_fat_size, _END, 0)
    header += struct.pack("<5H6x9I", 0x3E, 3, 0xFFFE, 9, 6, *numbers)
    return header + struct.pack("<109I", *places) + b"".join(sectors) + table


def _add(entries: list[list[int | str | bytes]], name: str, content: "bytes | Storage", kind: int) -> int:
    """Add an entry and what is in it; return its number. Siblings are a list to the right."""
    number = len(entries)
    entries.append([name, kind, _FREE, _FREE, content if isinstance(content, bytes) else b""])
    before: int | None = None
    if not isinstance(content, bytes):
        for child, inner in sorted(content.items(), key=lambda pair: (len(pair[0]), pair[0].upper())):
            one = _add(entries, child, inner, 2 if isinstance(inner, bytes) else 1)
            entries[number if before is None else before][3 if before is None else 2] = one
            before = one
    return number


def _entry(entry: list[int | str | bytes], start: int, size: int) -> bytes:
    name, kind, right, child, _ = entry
    encoded = str(name).encode("utf-16-le") + b"\0\0"
    return struct.pack("<64sHBBIII36xIQ", encoded, len(encoded), kind, 1, _FREE, right, child, start, size)


def _put(
    sectors: list[bytes], fat: list[int], content: bytes, size: int = _SECTOR, pad: bytes = b"\0"
) -> int:
    start = len(sectors)
    for at in range(0, len(content), size):
        sectors.append(content[at : at + size].ljust(size, pad))
        fat.append(len(sectors) if at + size < len(content) else _END)
    return start


def _properties(header: int, values: Mapping[tuple[int, int], bytes]) -> dict[str, "bytes | Storage"]:
    entries = b"".join(
        struct.pack("<HHIII", kind, pid, 6, len(v) + 2, 0) for (pid, kind), v in values.items()
    )
    streams = {f"__substg1.0_{pid:04X}{kind:04X}": value for (pid, kind), value in values.items()}
    return {"__properties_version1.0": bytes(header) + entries, **streams}


def message(subject: str, sender: str, body: str, attachments: Mapping[str, bytes]) -> bytes:
    """Return a mail."""
    texts = {0x0037: subject, 0x0C1A: sender, 0x0C1F: f"{sender}@example.com", 0x1000: body}
    root = _properties(32, {(pid, _TEXT): text.encode("utf-16-le") for pid, text in texts.items()})
    for number, (name, content) in enumerate(attachments.items()):
        values = {(0x3707, _TEXT): name.encode("utf-16-le"), (0x3701, _BINARY): content}
        root[f"__attach_version1.0_#{number:08X}"] = _properties(8, values)
    return compound_file(root)
