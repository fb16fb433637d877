"""Short-lived tokens that a command prints, such as ``az account get-access-token``."""

import asyncio
import logging
import shlex
import subprocess
import threading
import time

from pydantic import SecretStr

from vectorforge.credentials import KeyOrigin
from vectorforge.errors import ConfigurationError

logger = logging.getLogger(__name__)

_MAX_AGE_S = 300.0
"""Tokens of Entra ID live for 60 to 90 minutes; the commands that print them have caches of their own."""
_PAUSE_S = 5.0
"""Between two runs that refusals ask for."""
_TIMEOUT_S = 15.0
_MAX_CHARS = 16 * 1024


class CommandCredentials:
    """A token read from a command's output, again every 5 minutes and when it is refused.

    Args:
        command: With its arguments; run without a shell.
        setting: Name of the variable that holds it, for errors and the log.

    Raises:
        ConfigurationError: The command cannot be split into words.
    """

    def __init__(self, command: str, setting: str) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as exc:
            raise ConfigurationError(f"{setting} is not a command: {exc}.") from None
        self._setting = setting
        self._lock = threading.Lock()
        self._token = SecretStr("")
        self._run_at = float("-inf")

    @property
    def origin(self) -> KeyOrigin:
        """A command that the environment names."""
        return KeyOrigin.COMMAND

    async def current(self) -> SecretStr:
        """Return the token; run the command first if the last one is older than 5 minutes."""
        return await self._younger_than(_MAX_AGE_S)

    async def refresh(self, refused: SecretStr) -> SecretStr:
        """Return another token if the command prints one; it runs at most every 5 seconds."""
        return self._token if self._token != refused else await self._younger_than(_PAUSE_S)

    async def _younger_than(self, age_s: float) -> SecretStr:
        if time.monotonic() - self._run_at >= age_s:
            await asyncio.to_thread(self._read, age_s)
        return self._token

    def _read(self, age_s: float) -> None:
        with self._lock:  # one run for all that wait
            if time.monotonic() - self._run_at < age_s:
                return
            try:
                self._token = SecretStr(self._printed())
            except (OSError, ValueError, subprocess.SubprocessError) as exc:
                reason = str(exc) if isinstance(exc, _NoTokenError) else type(exc).__name__
                logger.warning("%s printed no token (%s); the last one stays in use", self._setting, reason)
            self._run_at = time.monotonic()

    def _printed(self) -> str:
        """The token; errors never show what the command printed."""
        finished = subprocess.run(  # noqa: S603 - named by the operator
            self._words,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
        token = finished.stdout.strip()
        if finished.returncode:
            raise _NoTokenError(f"exit code {finished.returncode}")
        if not token or len(token) > _MAX_CHARS or len(token.split()) > 1:
            raise _NoTokenError(f"it must print one token of at most {_MAX_CHARS} characters, nothing else")
        return token


class _NoTokenError(ValueError):
    """The command failed, or printed something else."""
