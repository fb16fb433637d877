"""``python -m infra.emulator.localstack_plugins.start``: LocalStack with two of its bugs fixed.

From Python 3.13 on ``threading.Lock`` is a class (https://docs.python.org/3/library/threading.html#threading.Lock).
LocalStack 4.13 writes ``Lock | None`` without saying that it needs 3.13, so Step Functions would not start.
"""

import runpy
import sys
import threading
from typing import Any

from infra.emulator.localstack_plugins.lambda_alias import let_aliases_move

_allocate = threading.Lock


class Lock:
    """A class for annotations; its instances are plain locks."""

    def __new__(cls) -> Any:
        """Return a lock."""
        return _allocate()


if __name__ == "__main__":
    if sys.version_info < (3, 13):
        threading.Lock = Lock
    let_aliases_move()
    runpy.run_module("localstack.runtime.main", run_name="__main__", alter_sys=True)
