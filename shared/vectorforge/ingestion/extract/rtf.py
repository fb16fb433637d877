"""Rich text (.rtf) by striprtf; runs in the child process only (``isolation``)."""

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.decode import clean
from vectorforge.ingestion.types import ReadText


def extract_rtf(content: bytes) -> ReadText:
    """Read the text of a rich text file, without its pictures and its formatting.

    Raises:
        ExtractionError: ``unreadable``.
    """
    from striprtf.striprtf import rtf_to_text

    try:
        text = str(rtf_to_text(content.decode("latin-1"), errors="replace"))  # type: ignore[no-untyped-call]
    except MemoryError:
        raise
    except Exception as exc:  # whatever broken control words make it raise
        raise ExtractionError("The rich text is damaged and cannot be read.") from exc
    return {"text": clean(text)[0].strip(), "title": None, "page_starts": [], "warnings": []}
