

import sys
from types import TracebackType


def _end_quietly(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print no traceback of Ctrl-C, also during imports; Python then ends by SIGINT, which shells show as 130."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _end_quietly
