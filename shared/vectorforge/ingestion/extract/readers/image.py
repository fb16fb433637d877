"""PNG, JPEG and TIFF, as PDFs of a picture per page: read by OCR, and rendered as those are."""

import io
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Final

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.blocks import Reading
from vectorforge.ingestion.extract.readers.ocr import SWITCH_ON
from vectorforge.ingestion.extract.readers.pdf import read_pdf
from vectorforge.ingestion.types import OcrOptions

_MAX_PIXELS: Final = 50_000_000
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
            "Images need Pillow, not installed here: install 'vectorforge[ocr]'.", reason="not_deployed"
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
            if frame.width * frame.height > _MAX_PIXELS:
                raise ExtractionError(f"The image has over {_MAX_PIXELS:,} pixels.", reason="too_large")
            upright = ImageOps.exif_transpose(frame).convert("RGB")
            upright.thumbnail((_LONG_SIDE_PIXELS, _LONG_SIDE_PIXELS))
            yield upright
