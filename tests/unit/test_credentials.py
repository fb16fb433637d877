"""Keys that may be rotated while a process runs: their sources, and refreshes."""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
from pydantic import SecretStr

from vectorforge.aws.secrets import KeyPlace, StoredCredentials, StoredKeys
from vectorforge.bootstrap import credential_store
from vectorforge.config import AwsSettings, VectorForgeConfig
from vectorforge.errors import ConfigurationError, SecretsUnavailableError
from vectorforge.vendors.credentials import FixedCredentials, KeyOrigin, find_credentials

OLD, NEW = SecretStr("old-canary"), SecretStr("new-canary")
SETTING = "openai_api_key"


@dataclass
class Vault:
    """Source of a reader; counts the reads."""

    fields: dict[str, object] = field(default_factory=lambda: {SETTING: OLD.get_secret_value()})
    failure: Exception | None = None
    readings: int = 0
    open: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.open.set()

    def __call__(self) -> dict[str, object]:
        self.readings += 1
        assert self.open.wait(30)
        if self.failure is not None:
            raise self.failure
        return dict(self.fields)


def place(read: Callable[[], Mapping[str, object]], *, max_age_s: float = 300) -> KeyPlace:
    return KeyPlace("Secret s", KeyOrigin.SECRET, read, max_age_s=max_age_s)


def stored(vault: Vault, *, max_age_s: float = 300) -> StoredCredentials:
    found = StoredKeys((place(vault, max_age_s=max_age_s),)).find(SETTING)
    assert isinstance(found, StoredCredentials)
    return found


class TestKeyLookup:
    # C25
    def test_environment_precedes_secret_and_empty_counts_as_unset(self) -> None:
        vault = Vault()
        store = StoredKeys((place(vault),))
        found = find_credentials(SETTING, SecretStr("from-environment"), store)
        assert found is not None
        assert found.origin == KeyOrigin.ENVIRONMENT
        assert vault.readings == 0
        for value in (None, SecretStr("")):
            found = find_credentials(SETTING, value, store)
            assert found is not None
            assert found.origin == KeyOrigin.SECRET
        assert vault.readings == 1
        assert find_credentials(SETTING, None, None) is None

    def test_plain_field_name_precedes_prefixed_one(self) -> None:
        vault = Vault({"VECTORFORGE_OPENAI_API_KEY": "a", "cohere_api_key": "plain"})
        vault.fields |= {
            "VECTORFORGE_COHERE_API_KEY": "other",
            "google_api_key": " ",
            "anthropic_api_key": "",
        }
        keys = place(vault)
        keys.open()
        assert {name: key.get_secret_value() for name, key in keys.keys.items()} == {
            "openai_api_key": "a",
            "cohere_api_key": "plain",
        }

    async def test_trailing_newline_is_stripped(self) -> None:
        assert await stored(Vault({SETTING: "key\n"})).current() == SecretStr("key")

    def test_unknown_fields_are_logged_once_without_values(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO", "vectorforge.aws.secrets")
        swapped = "sk-proj-canary0123456789"  # name and value swapped in the console
        vault = Vault({SETTING: "k", "opnai_api_key": "canary", "note": {"a": "canary"}, swapped: SETTING})
        keys = place(vault)
        keys.open()
        keys.read_again()
        assert caplog.messages == ["Secret s: ignored 3 unknown fields, among them opnai_api_key"]

    def test_non_string_field_is_rejected_by_name(self) -> None:
        with pytest.raises(
            ConfigurationError, match=r"^Secret s: the field openai_api_key must be a string.$"
        ):
            place(Vault({SETTING: ["canary"]})).open()

    def test_empty_secret_is_allowed_with_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        assert StoredKeys((place(Vault({})),)).find(SETTING) is None
        assert "Secret s holds no provider's key" in caplog.text

    def test_config_without_secret_id_has_no_store(self) -> None:
        assert credential_store(VectorForgeConfig()) is None
        assert credential_store(VectorForgeConfig(aws=AwsSettings(provider_secret_id="s"))) is not None

    def test_non_key_settings_are_not_looked_up(self) -> None:
        vault = Vault({"ollama_base_url": "http://elsewhere"})
        assert StoredKeys((place(vault),)).find("ollama_base_url") is None
        assert vault.readings == 0


class TestKeyRefresh:
    async def test_fresh_key_is_served_without_reading(self) -> None:
        vault = Vault()
        credentials = stored(vault)
        assert [await credentials.current() for _ in range(100)] == [OLD] * 100
        assert vault.readings == 1

    async def test_released_key_is_read_again(self) -> None:
        vault = Vault()
        keys = StoredKeys((place(vault),))
        credentials = keys.find(SETTING)
        assert credentials is not None
        keys.release()
        vault.fields[SETTING] = NEW.get_secret_value()
        assert await credentials.current() == NEW
        assert vault.readings == 2

    async def test_replaced_key_is_logged_once_without_values(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO", "vectorforge.aws.secrets")
        vault = Vault()
        keys = StoredKeys((place(vault),))
        credentials = keys.find(SETTING)
        assert credentials is not None
        for key in (OLD, NEW, NEW):
            vault.fields[SETTING] = key.get_secret_value()
            keys.release()
            assert await credentials.current() == key
        assert caplog.messages == ["Secret s holds another openai_api_key, which is used from now on"]

    async def test_expired_key_is_read_once_for_many_requests(self) -> None:
        vault = Vault()
        credentials = stored(vault, max_age_s=0.2)
        vault.fields[SETTING] = NEW.get_secret_value()
        async with asyncio.timeout(10):
            while await credentials.current() == OLD:  # noqa: ASYNC110 - nothing tells when it is too old
                await asyncio.sleep(0.01)
        assert vault.readings == 2

    # C25
    async def test_concurrent_rejections_trigger_one_reading(self) -> None:
        vault = Vault()
        credentials = stored(vault)
        vault.fields[SETTING] = NEW.get_secret_value()
        assert set(await asyncio.gather(*(credentials.refresh(OLD) for _ in range(50)))) == {NEW}
        assert await credentials.refresh(OLD) == NEW  # a late one
        assert vault.readings == 2

    # C25
    async def test_persistently_rejected_key_is_not_read_per_query(self) -> None:
        vault = Vault()
        credentials = stored(vault)
        for _ in range(20):
            assert await credentials.refresh(OLD) == OLD
        assert vault.readings == 2

    async def test_repeated_rotation_is_read_without_pause(self) -> None:
        vault = Vault()
        credentials = stored(vault)
        for number in range(3):
            vault.fields[SETTING] = f"key {number}"
            assert await credentials.refresh(await credentials.current()) == SecretStr(f"key {number}")
        assert vault.readings == 4

    @pytest.mark.parametrize(
        "failure", [SecretsUnavailableError("Secret s is down."), ConfigurationError("Gone.")]
    )
    async def test_outage_retains_last_key(
        self, failure: Exception, caplog: pytest.LogCaptureFixture
    ) -> None:
        vault = Vault()
        credentials = stored(vault, max_age_s=0.1)
        vault.failure = failure
        async with asyncio.timeout(10):
            while vault.readings < 2:
                assert await credentials.current() == OLD
                await asyncio.sleep(0.01)
        assert await credentials.refresh(OLD) == OLD
        warning = f"{str(failure).rstrip('.')}; going on with the last keys"
        assert ("vectorforge.aws.secrets", logging.WARNING, warning) in caplog.record_tuples

    async def test_removed_field_retains_last_key(self, caplog: pytest.LogCaptureFixture) -> None:
        vault = Vault()
        credentials = stored(vault)
        vault.fields = {}
        assert await credentials.refresh(OLD) == OLD
        assert "Secret s no longer holds openai_api_key; going on with the last one" in caplog.messages

    async def test_hanging_secret_store_does_not_delay_query(self) -> None:
        vault = Vault()
        credentials = stored(vault, max_age_s=0.05)
        vault.fields[SETTING] = NEW.get_secret_value()
        vault.open.clear()
        while vault.readings < 2:
            assert await credentials.current() == OLD
            await asyncio.sleep(0.01)
        assert not vault.open.is_set()
        vault.open.set()
        assert await credentials.refresh(OLD) == NEW

    async def test_hanging_secret_store_does_not_delay_rejected_query(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        vault = Vault()
        credentials = stored(vault)
        vault.fields[SETTING] = NEW.get_secret_value()
        vault.open.clear()
        assert await credentials.refresh(OLD) == OLD
        assert not vault.open.is_set()
        assert "Secret s answers slowly; going on with the last keys" in caplog.messages
        vault.open.set()
        assert await credentials.refresh(OLD) == NEW

    async def test_close_ends_thread_and_leaves_key_usable(self) -> None:
        vault = Vault()
        store = StoredKeys((place(vault),))
        credentials = store.find(SETTING)
        assert credentials is not None
        others = threading.enumerate()
        assert await credentials.refresh(OLD) == OLD
        [thread] = [thread for thread in threading.enumerate() if thread not in others]
        store.close()
        store.close()
        await asyncio.to_thread(thread.join, 30)
        assert not thread.is_alive()
        assert await credentials.current() == OLD

    def test_failed_first_reading_raises(self) -> None:
        vault = Vault(failure=SecretsUnavailableError("Secret s is down."))
        keys = StoredKeys((place(vault),))
        with pytest.raises(SecretsUnavailableError):
            keys.find(SETTING)
        vault.failure = None
        assert keys.find(SETTING) is not None

    def test_clock_set_back_still_expires_key(self) -> None:
        keys = place(Vault(), max_age_s=10)
        keys.open()
        assert not keys.is_due()
        vars(keys)["_due_after"] += 3600
        assert keys.is_due()

    def test_repr_hides_key_values(self) -> None:
        credentials = stored(Vault())
        keys = vars(credentials)["_place"].keys
        assert "canary" not in repr(credentials) + repr(vars(credentials)) + repr(keys)
        assert "canary" not in repr(vars(FixedCredentials(OLD)))
