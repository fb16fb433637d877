"""The X-Ray daemon: a UDP port that receives segment documents.

https://docs.aws.amazon.com/xray/latest/devguide/xray-api-sendingdata.html
"""

import json
import select
import socket
from types import TracebackType
from typing import Any, Self


class XRayDaemon:
    """Listens on a free port of this machine; use it as a context manager."""

    def __enter__(self) -> Self:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    @property
    def address(self) -> str:
        """Value for ``AWS_XRAY_DAEMON_ADDRESS``."""
        host, port = self._socket.getsockname()
        return f"{host}:{port}"

    def received(self) -> list[dict[str, Any]]:
        """Return the documents received since the last call, oldest first.

        Raises:
            AssertionError: A datagram is not a segment document.
        """
        documents = []
        while select.select([self._socket], [], [], 0)[0]:
            header, _, body = self._socket.recv(65536).partition(b"\n")
            assert json.loads(header) == {"format": "json", "version": 1}
            documents.append(json.loads(body))
        return documents
