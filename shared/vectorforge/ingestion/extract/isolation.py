"""Isolation of unsafe formats: they are read in a child process with hard limits."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.types import ExtractionLimits

PAGE_IMAGE = "page_image"
"""Job of a child that renders a page of a PDF; the other jobs are media types."""
_MEMORY_BYTES = 2 * 1024**3  # address space, not resident memory
_POLL_S = 0.1
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "LANG", "SYSTEMROOT", "TESSDATA_PREFIX")
"""Variables that an interpreter needs to start; no secrets."""

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "OPENBLAS_NUM_THREADS"), "1")
"""Threads of OCR: each takes memory and CPU time of the limits, and several documents are read at once."""


def run_isolated(
    kind: str,
    content: bytes,
    arguments: Mapping[str, Any],
    *,
    limits: ExtractionLimits,
    cancellation: threading.Event | None = None,
) -> dict[str, Any]:
    """Run the reader of a media type, or another job of ``child``, in a child process.

    Within ``limits.timeout_s`` seconds and 2 GiB. Blocks the calling thread; a cancellation is noticed within
    0.1 s and ends the child.

    Raises:
        ExtractionError: The reader's error; ``too_large`` when it ran out of time or memory;
            ``unreadable`` when the file crashed it.
    """
    job = {
        "kind": kind,
        "arguments": arguments,
        "memory_bytes": _MEMORY_BYTES,
        "cpu_s": int(limits.timeout_s) + 1,
    }
    with tempfile.TemporaryFile() as file:  # communicate() with a timeout stops writing to a pipe
        file.write(content)
        file.seek(0)
        process = subprocess.Popen(  # noqa: S603 - our own module, no shell
            [sys.executable, "-P", "-m", "vectorforge.ingestion.extract.child", json.dumps(job)],
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
            env={
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                **_ONE_THREAD,
                **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
            },
        )
        with process:
            try:
                output = _wait(process, time.monotonic() + limits.timeout_s, cancellation)
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # with tesseract
                raise
    return _result(output, limits)


def _wait(process: "subprocess.Popen[bytes]", end: float, cancellation: threading.Event | None) -> bytes:
    while True:
        try:
            return process.communicate(timeout=_POLL_S)[0]
        except subprocess.TimeoutExpired:
            if time.monotonic() > end:
                raise ExtractionError(
                    "Reading takes too long: split the document, or raise VECTORFORGE_EXTRACTION_TIMEOUT_S.",
                    reason="too_large",
                ) from None
            if cancellation is not None and cancellation.is_set():
                raise ExtractionError("Reading the document was cancelled.") from None


def _result(output: bytes, limits: ExtractionLimits) -> dict[str, Any]:
    try:
        result: dict[str, Any] = json.loads(output)
    except ValueError as exc:
        raise ExtractionError(
            f"The document crashed its reader or needed more than {_MEMORY_BYTES >> 30} GiB or "
            f"{limits.timeout_s:g} s."
        ) from exc
    if "error" in result:
        reason, message = result["error"]
        raise ExtractionError(message, reason=reason)
    return result
