"""Providers' keys from Secrets Manager and from SSM parameters, re-read as they age or are rejected.

A place is read for the first key that the environment does not hold. Later reads replace its values; one that
fails leaves them, with a warning, so that an outage does not stop a running process.
"""

import asyncio
import logging
import math
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from pydantic import SecretStr

from vectorforge.aws.clients import AwsClients
from vectorforge.aws.secret_readers import parameter_reader, secret_reader
from vectorforge.config import AwsSettings
from vectorforge.errors import ConfigurationError, VectorForgeError
from vectorforge.vendors.credentials import Credentials, KeyOrigin

logger = logging.getLogger(__name__)

KEY_SETTINGS = frozenset(
    {
        "openai_api_key",
        "anthropic_api_key",
        "azure_openai_api_key",
        "azure_openai_ad_token",
        "vertex_access_token",
        "google_api_key",
        "cohere_api_key",
        "embedding_api_key",
        "rerank_api_key",
        "otlp_headers",
    }
)
"""Settings that may be stored."""

_PAUSE_S = 30.0
"""Minimum time between two reads without a new key: a wrong key must not cost a call per query."""
_LONGEST_WAIT_S = 2.0
"""Longest wait of a query for a read; then it uses the key it has."""
_NAME = re.compile(r"[a-z]+(_[a-z]+)+", re.IGNORECASE)
"""Field names that may be logged. Who swaps name and value in the console makes a key the name."""


class StoredCredentials:
    """One key of a place."""

    def __init__(self, place: "KeyPlace", setting: str) -> None:
        self._place = place
        self._setting = setting
        self._refresh_after = 0.0

    @property
    def origin(self) -> KeyOrigin:
        """Kind of the place."""
        return self._place.origin

    async def current(self) -> SecretStr:
        """Return the key as last read; re-read it first, in at most 2 s, when it is too old."""
        if self._place.is_due():
            await self._place.in_thread(self._place.read_if_due)
        return self._place.keys[self._setting]

    async def refresh(self, refused: SecretStr) -> SecretStr:
        """Return the replacement of a rejected key; re-read unless that failed within the last 30 s.

        Waits at most 2 s; the read continues for later queries.
        """
        if self._place.keys[self._setting] == refused:
            await self._place.in_thread(lambda: self._replace(refused))
        return self._place.keys[self._setting]

    def _replace(self, refused: SecretStr) -> None:
        now = time.time()
        if self._place.keys[self._setting] != refused or _is_before(now, self._refresh_after, _PAUSE_S):
            return
        self._place.read_again()
        if self._place.keys[self._setting] == refused:
            self._refresh_after = now + _PAUSE_S
            logger.warning("The %s in %s was refused, and there is no other", self._setting, self._place.name)
        else:
            logger.info("The %s in %s was refused; going on with a new one", self._setting, self._place.name)


class KeyPlace:
    """A secret, or a path of parameters: several keys that are read together.

    Args:
        name: Name for logs and errors, e.g. "Secret vectorforge/keys".
        read: Returns field names and their values. Called in one thread at a time.
        max_age_s: Seconds after which the keys are re-read.
    """

    def __init__(
        self, name: str, origin: KeyOrigin, read: Callable[[], Mapping[str, object]], *, max_age_s: float
    ) -> None:
        self.name = name
        self.origin = origin
        self.keys: Mapping[str, SecretStr] = {}
        """Keys by name of the setting, as last read, and older ones that were removed since."""
        self._read = read
        self._max_age_s = max_age_s
        self._due_after: float | None = None
        self._executor: ThreadPoolExecutor | None = None

    def open(self) -> None:
        """Read for the first time, or do nothing; errors as ``StoredKeys.find``."""
        if self._due_after is None:
            self.keys = self._read_keys()
            self._due_after = time.time() + self._max_age_s
            if not self.keys:
                known = ", ".join(sorted(KEY_SETTINGS))
                logger.warning("%s holds no provider's key; known are: %s", self.name, known)

    def is_due(self) -> bool:
        """Return True if the keys are too old."""
        return self._due_after is None or not _is_before(time.time(), self._due_after, self._max_age_s)

    def expire(self) -> None:
        """Read again before the keys are next used."""
        if self._due_after is not None:
            self._due_after = -math.inf

    def read_if_due(self) -> None:
        """Read again, unless another request has done so meanwhile."""
        if self.is_due():
            self.read_again()

    def read_again(self) -> None:
        """Replace the keys; leave them, with a warning, when they cannot be read."""
        try:
            fresh = self._read_keys()
        except VectorForgeError as exc:
            logger.warning("%s; going on with the last keys", exc.message.rstrip("."))
            self._due_after = time.time() + min(_PAUSE_S, self._max_age_s)
            return
        if gone := self.keys.keys() - fresh.keys():
            names = ", ".join(sorted(gone))
            logger.warning("%s no longer holds %s; going on with the last one", self.name, names)
        for name, key in fresh.items():
            if self.keys.get(name, key) != key:
                logger.info("%s holds another %s, which is used from now on", self.name, name)
        self.keys = {**self.keys, **fresh}
        self._due_after = time.time() + self._max_age_s

    async def in_thread(self, call: Callable[[], None]) -> None:
        """Run a call off the event loop, one at a time, and wait for it at most 2 s."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="vectorforge-secrets")
        try:
            async with asyncio.timeout(_LONGEST_WAIT_S):
                await asyncio.get_running_loop().run_in_executor(self._executor, call)
        except TimeoutError:
            logger.warning("%s answers slowly; going on with the last keys", self.name)

    def close(self) -> None:
        """End the thread; what runs in it ends on its own. Safe to call twice, and the keys stay."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)

    def _read_keys(self) -> dict[str, SecretStr]:
        fields = self._read()
        unknown: list[str] = []
        keys: dict[str, SecretStr] = {}
        for field, value in fields.items():
            setting = field.lower().removeprefix("vectorforge_")
            if setting not in KEY_SETTINGS:
                unknown.append(field)
                continue
            if not isinstance(value, str):
                raise ConfigurationError(f"{self.name}: the field {field} must be a string.")
            # The plain name wins over the environment variable's.
            if value.strip() and (field == setting or setting not in keys):
                keys[setting] = SecretStr(value.strip())
        if unknown and self._due_after is None:  # once
            names = ", ".join(sorted(name for name in unknown if len(name) <= 40 and _NAME.fullmatch(name)))
            among = f", among them {names}" if names else ""
            logger.info("%s: ignored %d unknown fields%s", self.name, len(unknown), among)
        return keys


class StoredKeys:
    """Places named by the settings, in the order of look-up: the secret first."""

    def __init__(self, places: tuple[KeyPlace, ...], clients: AwsClients | None = None) -> None:
        self._places = places
        self._clients = clients
        self._credentials: dict[str, StoredCredentials] = {}

    @classmethod
    def from_settings(cls, settings: AwsSettings) -> "StoredKeys":
        """Connects to nothing yet."""
        age_s = settings.secret_max_age_s
        # Together less than the ten seconds of Lambda's init phase.
        clients = AwsClients(connect_timeout_s=1.0, read_timeout_s=2.0, max_attempts=2)
        places: list[KeyPlace] = []
        if secret_id := settings.provider_secret_id:
            read = secret_reader(clients, secret_id)
            places.append(KeyPlace(f"Secret {secret_id}", KeyOrigin.SECRET, read, max_age_s=age_s))
        if path := settings.provider_parameter_path:
            read = parameter_reader(clients, path)
            places.append(KeyPlace(f"Parameter path {path}", KeyOrigin.PARAMETER, read, max_age_s=age_s))
        return cls(tuple(places), clients)

    def find(self, setting: str) -> Credentials | None:
        """Return the key of this setting from the first place that holds it; read each place at most once.

        Raises:
            ConfigurationError: A place is missing, may not be read, or holds something else.
            SecretsUnavailableError: AWS does not respond.
        """
        if setting not in self._credentials and setting in KEY_SETTINGS:
            for place in self._places:
                place.open()
                if setting in place.keys:
                    self._credentials[setting] = StoredCredentials(place, setting)
                    break
        return self._credentials.get(setting)

    def close(self) -> None:
        """End threads and connections; safe to call twice."""
        for place in self._places:
            place.close()
        if self._clients is not None:
            self._clients.close()

    def release(self) -> None:
        """Close the connections to AWS, and read each place again before its keys are next used."""
        for place in self._places:
            place.expire()
        if self._clients is not None:
            self._clients.disconnect()


def _is_before(now: float, moment: float, longest: float) -> bool:
    """Return True for a time in the future within the expected range: clocks may be set back.

    The monotonic clock may stand still while a function is frozen between invocations.
    """
    return moment - longest <= now < moment
