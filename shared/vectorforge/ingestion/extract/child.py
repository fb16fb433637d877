"""The child process that reads one hostile file: ``python -m vectorforge.ingestion.extract.child pdf``.

Bytes on stdin, one JSON object on stdout: what the reader returned, or ``{"error": [reason, message]}``.
"""

import json
import resource
import sys

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.docx import extract_docx
from vectorforge.ingestion.extract.pdf import extract_pdf

_READERS = {"pdf": extract_pdf, "docx": extract_docx}


def main(reader: str, max_chars: int, memory_bytes: int, cpu_s: int) -> None:
    """Read stdin within the limits and print the result."""
    _limit(resource.RLIMIT_AS, memory_bytes)
    _limit(resource.RLIMIT_CPU, cpu_s)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    try:
        result = _READERS[reader](sys.stdin.buffer.read(), max_chars=max_chars)
    except ExtractionError as exc:
        result = {"error": [exc.reason, exc.message]}
    except MemoryError:
        result = {"error": ["too_large", "Reading the document takes too much memory."]}
    sys.stdout.write(json.dumps(result))


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    try:
        resource.setrlimit(kind, (value, value))
    except (ValueError, OSError):  # macOS knows RLIMIT_AS but does not keep it
        return


if __name__ == "__main__":
    main(sys.argv[1], *(int(argument) for argument in sys.argv[2:5]))
