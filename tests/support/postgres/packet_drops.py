"""Silent packet loss in the kernel, as in a broken network. Linux only, as root."""

import os
import shutil
import subprocess
import sys
from types import TracebackType
from typing import Self

_TIMEOUT_S = 10


class PacketDrops:
    """Drops every packet to and from an address of the loopback network, as an entered context manager.

    No RST or ICMP packet reports the loss. Packets that are sent again afterwards arrive.

    Args:
        address: An otherwise unused one, such as 127.25.25.25, so that a leftover rule does no harm.
    """

    def __init__(self, address: str) -> None:
        self._rules = [("-i", "lo", side, address, "-j", "DROP") for side in ("-s", "-d")]

    @staticmethod
    def missing() -> str:
        """Return the reason why this machine cannot drop packets, or an empty string."""
        if not sys.platform.startswith("linux"):
            return "only Linux has iptables"
        if os.geteuid() != 0:
            return "only root may drop packets"
        if shutil.which("iptables") is None:
            return "iptables is not installed"
        done = _iptables("-n", "-L", "INPUT")
        return "" if done.returncode == 0 else "this machine does not let iptables work"

    def __enter__(self) -> Self:
        for rule in self._rules:
            _iptables("-I", "INPUT", *rule).check_returncode()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for rule in self._rules:
            _iptables("-D", "INPUT", *rule)


def _iptables(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    program = shutil.which("iptables") or "iptables"
    command = [program, "-w", "5", *arguments]
    return subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
