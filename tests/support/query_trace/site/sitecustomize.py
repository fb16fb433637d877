"""Count calls of the project's functions in this process while ``$QUERY_TRACE_FOLDER/record`` exists.

Python imports this module by its name when its folder is on PYTHONPATH.
"""

import dis
import json
import os
import sys
import threading
import time
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

_ROOT = Path(__file__).parents[4]
_PARTS = (f"{_ROOT}/shared/vectorforge/", f"{_ROOT}/functions/")
_FOLDER = Path(os.environ["QUERY_TRACE_FOLDER"])
_POLL_S = 0.01

_calls: dict[str, int] = {}
_state = {"on": False}


def _count(frame: FrameType, event: str, _: object) -> None:
    if _state["on"] and event == "call":
        file = frame.f_code.co_filename
        if file.startswith(_PARTS) and frame.f_lasti <= _start_of(frame.f_code):
            _calls[file] = _calls.get(file, 0) + 1


@cache
def _start_of(code: CodeType) -> int:
    """Return the offset at which a call begins; a coroutine that resumes is beyond it.

    https://docs.python.org/3/library/dis.html#opcode-RESUME
    """
    starts = (i.offset for i in dis.get_instructions(code) if i.opname == "RESUME" and not (i.arg or 0) & 3)
    return next(starts, 0)


def _watch() -> None:
    switch, recording = _FOLDER / "record", _FOLDER / "recording"
    while True:
        if switch.exists() and not _state["on"]:
            _calls.clear()
            _state["on"] = True
            recording.touch()
        elif _state["on"] and not switch.exists():
            _state["on"] = False
            recording.unlink()
            calls = {os.path.relpath(file, _ROOT): count for file, count in _calls.items()}
            (_FOLDER / "new.json").write_text(json.dumps(calls), encoding="utf-8")
            (_FOLDER / "new.json").rename(_FOLDER / "calls.json")
        time.sleep(_POLL_S)


threading.setprofile(_count)
sys.setprofile(_count)
threading.Thread(target=_watch, name="query trace", daemon=True).start()
