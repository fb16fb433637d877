"""Images: a PNG, JPEG or TIFF read by OCR as a PDF of a picture per page, and a page of a PDF as a PNG.

The page has marked rectangles and a marked quotation. Marks are multiplied into the pixels, as a highlighter
does, so that text stays readable. Runs in the extraction child.
"""

import io
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, Final

from vectorforge.errors import ExtractionError
from vectorforge.extras import how_to_install
from vectorforge.ingestion.extract.blocks import Reading
from vectorforge.ingestion.extract.readers.ocr import SWITCH_ON
from vectorforge.ingestion.extract.readers.pdf import read_pdf
from vectorforge.ingestion.extract.readers.pdf_words import HYPHEN, Segment, words_of_page
from vectorforge.ingestion.types import OcrOptions

_MAX_READ_PIXELS: Final = 50_000_000
"""Limit of one image, 150 MB in memory."""
_LONG_SIDE_PIXELS: Final = 2_400
_LONG_SIDE_INCHES: Final = 11.7
"""Long side of A4: the layout is read in points."""


def is_image(content: bytes) -> bool:
    """Return True for PNG, JPEG and TIFF, by their first bytes."""
    return content.startswith((b"\x89PNG", b"\xff\xd8\xff", b"II*\0", b"MM\0*"))


def read_image(content: bytes, *, ocr: OcrOptions) -> Reading:
    """Recognize the text of an image.

    Raises:
        ExtractionError: ``unsupported_type`` without OCR, or as ``pdf_of_image`` and ``read_pdf`` raise.
    """
    if not ocr.enabled:
        raise ExtractionError(f"The document is an image. {SWITCH_ON}", reason="unsupported_type")
    return read_pdf(pdf_of_image(content), ocr=ocr)


def pdf_of_image(content: bytes) -> bytes:
    """Return a PDF with a page for each frame of an image, upright and as large as A4.

    Raises:
        ExtractionError: ``too_large``: over 50 million pixels; ``unreadable``; ``not_deployed``: no Pillow.
    """
    if find_spec("PIL") is None:
        raise ExtractionError(
            f"Images need Pillow, not installed here: {how_to_install('ocr')}.", reason="not_deployed"
        )
    out = io.BytesIO()
    try:
        first, *rest = _frames(content)
        resolution = max(first.size) / _LONG_SIDE_INCHES
        first.save(out, "PDF", save_all=True, append_images=rest, resolution=resolution)
    except (ExtractionError, MemoryError):
        raise
    except Exception as exc:  # Pillow's decoders raise many kinds
        raise ExtractionError("The image is damaged and cannot be read.") from exc
    return out.getvalue()


def _frames(content: bytes) -> Iterator[Any]:
    from PIL import Image, ImageOps, ImageSequence

    Image.MAX_IMAGE_PIXELS = None  # checked here, before pixels are decoded
    with Image.open(io.BytesIO(content), formats=("PNG", "JPEG", "TIFF")) as image:
        for frame in ImageSequence.Iterator(image):
            if frame.width * frame.height > _MAX_READ_PIXELS:
                raise ExtractionError(f"The image has over {_MAX_READ_PIXELS:,} pixels.", reason="too_large")
            upright = ImageOps.exif_transpose(frame).convert("RGB")
            upright.thumbnail((_LONG_SIDE_PIXELS, _LONG_SIDE_PIXELS))
            yield upright


MAX_WIDTH: Final = 2_000
_MAX_PIXELS: Final = 8_000_000
"""Limit of one image, 24 MB in memory; a page of A4 that is 2,000 pixels wide has 5.7 million."""
_CHUNK: Final = bytes(value * 200 // 255 for value in range(256))
"""Table that makes white of a chunk pale yellow: less blue."""
_QUOTE: Final = bytes(value * 90 // 255 for value in range(256))
"""Table that makes white of the cited sentence yellow."""
_BLUE: Final = 2
_MIN_WORDS: Final = 2


def render_page(
    content: bytes, *, page: int, width: int, rects: Sequence[Sequence[float]] = (), quote: str = ""
) -> dict[str, Any]:
    """Render a page.

    Args:
        content: The PDF, or an image with a page for each of its frames.
        page: Number of the page, from 1.
        width: Width of the image in pixels, at most 2,000; less if the image would be larger than 8 million.
        rects: Rectangles to mark: x0, y0, x1, y1 as shares of the shown page, 0 to 1.
        quote: Words to mark more strongly, if the page has them in this order.

    Returns:
        ``png`` in base64, and ``pages``, the number of pages; only ``pages`` if there is no such page.

    Raises:
        ExtractionError: ``encrypted`` or ``unreadable``, or as ``pdf_of_image`` raises.
    """
    import pypdfium2

    try:
        pdf = pypdfium2.PdfDocument(pdf_of_image(content) if is_image(content) else content)
        count = len(pdf)
        if not 1 <= page <= count:
            return {"pages": count}
        shown = pdf[page - 1]
        points, height = shown.get_size()
        scale = min(width / points, (_MAX_PIXELS / (points * height)) ** 0.5)
        bitmap = shown.render(scale=scale, rev_byteorder=True, force_bitmap_format=_BGR)
        words = _found(quote, words_of_page(shown)) if quote else []
    except pypdfium2.PdfiumError as exc:
        raise ExtractionError("The page cannot be rendered.") from exc
    rows = _Rows(bytearray(bitmap.buffer), bitmap.width, bitmap.height, bitmap.stride)
    for rect in rects:
        rows.mark(rect, _CHUNK)
    for one in words:
        rows.mark((one.x0 / points, one.y0 / height, one.x1 / points, one.y1 / height), _QUOTE)
    return {"pages": count, "png": b64encode(rows.png()).decode()}


_BGR: Final = 2  # FPDFBitmap_BGR, three bytes a pixel; rev_byteorder makes them RGB


def _found(quote: str, words: Sequence[Segment]) -> list[Segment]:
    """Return the words of the first place that reads as the quote does, or nothing.

    Compared without punctuation, and without what divides a word at the end of a line.
    """
    wanted = [plain for word in quote.split() if (plain := _plain(word))]
    letters = "".join(wanted)
    have = [_plain(word.text) for word in words]
    starts = [0]
    for plain in have:
        starts.append(starts[-1] + len(plain))
    at = "".join(have).find(letters) if len(wanted) >= _MIN_WORDS else -1
    if at < 0:
        return []
    spans = zip(words, pairwise(starts), strict=True)
    return [word for word, (start, end) in spans if start < at + len(letters) and end > at]


def _plain(word: str) -> str:
    return "".join(letter for letter in word.replace(HYPHEN, "").casefold() if letter.isalnum())


class _Rows:
    """Pixels of an image, three bytes each."""

    def __init__(self, pixels: bytearray, width: int, height: int, stride: int) -> None:
        self._pixels, self._width, self._height, self._stride = pixels, width, height, stride

    def mark(self, rect: Sequence[float], factors: bytes) -> None:
        """Multiply the blue of a rectangle."""
        x0, y0, x1, y1 = (min(max(share, 0.0), 1.0) for share in rect)
        left, right = int(x0 * self._width), min(int(x1 * self._width) + 1, self._width)
        for row in range(int(y0 * self._height), min(int(y1 * self._height) + 1, self._height)):
            start = row * self._stride
            part = slice(start + 3 * left + _BLUE, start + 3 * right, 3)
            self._pixels[part] = self._pixels[part].translate(factors)

    def png(self) -> bytes:
        """Return the image as a PNG (https://www.w3.org/TR/png-3/): 8 bits RGB, unfiltered rows."""
        header = struct.pack(">IIBBBBB", self._width, self._height, 8, 2, 0, 0, 0)
        starts = range(0, self._height * self._stride, self._stride)
        rows = b"".join(b"\0" + self._pixels[at : at + 3 * self._width] for at in starts)
        parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, level=6)), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
