"""The child process that reads one hostile file: ``python -m vectorforge.ingestion.extract.child <job>``.

The job is a JSON object ``{reader, arguments, memory_bytes, cpu_s}``, the file is on stdin. On stdout comes
one JSON object: what the reader returned, or ``{"error": [reason, message]}``.
"""

import json
import resource
import sys
from collections.abc import Callable, Mapping
from typing import Any

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.html import extract_html
from vectorforge.ingestion.extract.markdown import extract_notebook
from vectorforge.ingestion.extract.office import extract_docx, extract_mail, extract_pdf, extract_rtf
from vectorforge.ingestion.extract.records import extract_json
from vectorforge.ingestion.types import ReadText

_READERS: Mapping[str, Callable[..., ReadText]] = {
    "pdf": extract_pdf,
    "docx": extract_docx,
    "html": extract_html,
    "mail": extract_mail,
    "notebook": extract_notebook,
    "json": extract_json,
    "rtf": extract_rtf,
}


def main(job: Mapping[str, Any]) -> None:
    """Read stdin within the limits and print the result."""
    _limit(resource.RLIMIT_AS, job["memory_bytes"])
    _limit(resource.RLIMIT_CPU, job["cpu_s"])
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    result: Mapping[str, Any]
    try:
        result = _READERS[job["reader"]](sys.stdin.buffer.read(), **job["arguments"])
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
