"""The child process that reads one hostile file: ``python -m vectorforge.ingestion.extract.child <job>``.

The job is a JSON object ``{kind, arguments, memory_bytes, cpu_s}``, the file is on stdin. Its kind is a media
type, or ``PAGE_IMAGE``. On stdout comes one JSON object: what the reader returned, or
``{"error": [reason, message]}``.
"""

import json
import resource
import sys
from collections.abc import Mapping
from typing import Any

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.isolation import PAGE_IMAGE
from vectorforge.ingestion.extract.reading import read_text
from vectorforge.ingestion.types import OcrOptions


def main(job: Mapping[str, Any]) -> None:
    """Read stdin within the limits and print the result."""
    _limit(resource.RLIMIT_AS, job["memory_bytes"])
    _limit(resource.RLIMIT_CPU, job["cpu_s"])
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    result: Mapping[str, Any]
    try:
        content = sys.stdin.buffer.read()
        if job["kind"] == PAGE_IMAGE:
            from vectorforge.ingestion.extract.readers.pdf_image import render_page

            result = render_page(content, **job["arguments"])
        else:
            arguments = {**job["arguments"], "ocr": OcrOptions(*job["arguments"]["ocr"])}
            result = read_text(job["kind"], content, **arguments)
    except ExtractionError as exc:
        result = {"error": [exc.reason, exc.message]}
    except MemoryError:
        result = {"error": ["too_large", "Reading the document needs too much memory."]}
    sys.stdout.write(json.dumps(result))


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    try:
        resource.setrlimit(kind, (value, value))
    except (ValueError, OSError):  # macOS has RLIMIT_AS but does not enforce it
        return


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
