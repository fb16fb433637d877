"""The service as a separate process, which a campaign may stop, continue and kill.

``python -m tests.campaigns.faults.service`` serves with the settings of the environment, and prints its
address.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

RECORD_LINE = '{"type":"vectorforge.query_log"'
"""Prefix of a printed record of the query log."""
_PORT = "CAMPAIGN_PORT"
_START_TIMEOUT_S = 60
_ROOT = Path(__file__).parents[3]


class ServiceProcess:
    """Runs while it is an entered context manager.

    Args:
        environment: All variables except PATH.
        printed: Receives the records of the query log that it prints, because the queue rejected them.
    """

    def __init__(self, environment: Mapping[str, str], printed: list[str]) -> None:
        self.url = ""
        """Set once it serves."""
        self._printed = printed
        self.output: list[str] = []
        """Every other line of its output."""
        self._environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": os.pathsep.join((str(_ROOT / "shared"), str(_ROOT))),
            "LANG": "en_US.UTF-8",
            **environment,
        }
        self._process: asyncio.subprocess.Process | None = None
        self._readers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def start(self) -> None:
        """Start the process, and wait until it serves; also after ``kill``.

        Raises:
            RuntimeError: It exited instead; the text has its last lines.
        """
        pipe = asyncio.subprocess.PIPE
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", __name__),
            env=self._environment,
            stdout=pipe,
            stderr=pipe,
            limit=16 * 1024 * 1024,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [asyncio.create_task(self._read(process.stderr))]
        async with asyncio.timeout(_START_TIMEOUT_S):
            address = (await process.stdout.readline()).decode().strip()
        if not address.startswith("http"):
            await process.wait()
            await asyncio.gather(*self._readers)
            raise RuntimeError("\n".join([address, *self.output[-20:]]))
        self.url = address
        self._environment[_PORT] = address.rpartition(":")[2]  # reused by the next process
        self._readers.append(asyncio.create_task(self._read(process.stdout)))

    def freeze(self) -> None:
        """Send SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Send SIGCONT."""
        self._signal(signal.SIGCONT)

    async def kill(self) -> None:
        """Send SIGKILL, and wait for the exit."""
        await self._end(signal.SIGKILL)

    async def end(self) -> None:
        """Send SIGTERM, after ten seconds SIGKILL."""
        await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._signal(signal.SIGCONT)
        self._signal(number)
        try:
            async with asyncio.timeout(10):
                await self._process.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._process.wait()
        await asyncio.gather(*self._readers)
        self._process = None

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._process is not None:
                self._process.send_signal(number)

    async def _read(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            text = line.decode(errors="replace").rstrip("\n")
            (self._printed if text.startswith(RECORD_LINE) else self.output).append(text)


async def main() -> None:
    """Serve until SIGTERM, with the server of ``vectorforge up``."""
    from vectorforge.api.app import create_app
    from vectorforge.bootstrap import Application
    from vectorforge.cli.commands.serve import bind
    from vectorforge.cli.commands.server import serve
    from vectorforge.config import VectorForgeConfig

    with bind("127.0.0.1", int(os.environ.get(_PORT, "0"))) as bound:

        async def say() -> None:
            sys.stdout.write("http://{}:{}\n".format(*bound.getsockname()))
            sys.stdout.flush()

        config = VectorForgeConfig.from_environment()
        application = Application.build(config)
        await application.preload()  # as before the first event on Lambda
        await serve(create_app(application), bound, config.server, on_started=say)


if __name__ == "__main__":
    asyncio.run(main())
