"""Count calls of the project's functions in this process while ``$QUERY_TRACE_FOLDER/record`` exists.

Python imports this module by its name when its folder is on PYTHONPATH.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from types import FrameType

_ROOT = Path(__file__).parents[4]
_PARTS = (f"{_ROOT}/shared/vectorforge/", f"{_ROOT}/functions/")
_FOLDER = Path(os.environ["QUERY_TRACE_FOLDER"])
_POLL_S = 0.01

_calls: dict[str, int] = {}
_state = {"on": False}


def _count(frame: FrameType, event: str, _: object) -> None:
    if _state["on"] and event == "call":
        file = frame.f_code.co_filename
        if file.startswith(_PARTS):
            _calls[file] = _calls.get(file, 0) + 1


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
