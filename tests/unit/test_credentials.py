"""Keys that may be exchanged while a process lives: where they are found and when they are read again."""

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
    """What a reader reads; counts its readings."""

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


class TestFindingKeys:
    # C25
    def test_environment_comes_first_and_empty_is_nothing(self) -> None:
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

    def test_both_spellings_are_known_and_the_plain_one_wins(self) -> None:
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

    async def test_a_line_end_that_was_copied_along_is_no_part_of_the_key(self) -> None:
        assert await stored(Vault({SETTING: "key\n"})).current() == SecretStr("key")

    def test_unknown_fields_are_told_once_and_never_their_values(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "vectorforge.aws.secrets")
        swapped = "sk-proj-canary0123456789"  # name and value swapped in the console
        vault = Vault({SETTING: "k", "opnai_api_key": "canary", "note": {"a": "canary"}, swapped: SETTING})
        keys = place(vault)
        keys.open()
        keys.read_again()
        assert caplog.messages == ["Secret s: ignored 3 unknown fields, among them opnai_api_key"]

    def test_a_field_that_is_no_string_is_refused_by_name(self) -> None:
        with pytest.raises(
            ConfigurationError, match=r"^Secret s: the field openai_api_key must be a string.$"
        ):
            place(Vault({SETTING: ["canary"]})).open()

    def test_nothing_there_is_allowed_with_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        assert StoredKeys((place(Vault({})),)).find(SETTING) is None
        assert "Secret s holds no provider's key" in caplog.text

    def test_without_a_place_there_is_no_store(self) -> None:
        assert credential_store(VectorForgeConfig()) is None
        assert credential_store(VectorForgeConfig(aws=AwsSettings(provider_secret_id="s"))) is not None

    def test_only_keys_are_looked_for(self) -> None:
        vault = Vault({"ollama_base_url": "http://elsewhere"})
        assert StoredKeys((place(vault),)).find("ollama_base_url") is None
        assert vault.readings == 0


class TestReadingAgain:
    async def test_a_young_key_costs_nothing(self) -> None:
        vault = Vault()
        credentials = stored(vault)
        assert [await credentials.current() for _ in range(100)] == [OLD] * 100
        assert vault.readings == 1

    async def test_after_a_release_the_key_is_read_again(self) -> None:
        vault = Vault()
        keys = StoredKeys((place(vault),))
        credentials = keys.find(SETTING)
        assert credentials is not None
        keys.release()
        vault.fields[SETTING] = NEW.get_secret_value()
        assert await credentials.current() == NEW
        assert vault.readings == 2

    async def test_a_key_that_is_too_old_is_read_once_for_many(self) -> None:
        vault = Vault()
        credentials = stored(vault, max_age_s=0.2)
        vault.fields[SETTING] = NEW.get_secret_value()
        async with asyncio.timeout(10):
            while await credentials.current() == OLD:  # noqa: ASYNC110 - nothing tells when it is too old
                await asyncio.sleep(0.01)
        assert vault.readings == 2

    # C25
    async def test_fifty_refusals_make_one_reading(self) -> None:
        vault = Vault()
        credentials = stored(vault)
        vault.fields[SETTING] = NEW.get_secret_value()
        assert set(await asyncio.gather(*(credentials.refresh(OLD) for _ in range(50)))) == {NEW}
        assert await credentials.refresh(OLD) == NEW  # a late one
        assert vault.readings == 2

    # C25
    async def test_a_key_that_stays_wrong_is_not_read_for_each_question(self) -> None:
        vault = Vault()
        credentials = stored(vault)
        for _ in range(20):
            assert await credentials.refresh(OLD) == OLD
        assert vault.readings == 2

    async def test_a_second_exchange_need_not_wait_for_the_pause(self) -> None:
        vault = Vault()
        credentials = stored(vault)
        for number in range(3):
            vault.fields[SETTING] = f"key {number}"
            assert await credentials.refresh(await credentials.current()) == SecretStr(f"key {number}")
        assert vault.readings == 4

    @pytest.mark.parametrize(
        "failure", [SecretsUnavailableError("Secret s is down."), ConfigurationError("Gone.")]
    )
    async def test_an_outage_leaves_the_key(
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

    async def test_a_field_that_is_gone_leaves_the_key(self, caplog: pytest.LogCaptureFixture) -> None:
        vault = Vault()
        credentials = stored(vault)
        vault.fields = {}
        assert await credentials.refresh(OLD) == OLD
        assert "Secret s no longer holds openai_api_key; going on with the last one" in caplog.messages

    async def test_no_question_waits_for_a_place_that_hangs(self) -> None:
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

    async def test_no_refused_question_waits_for_a_place_that_hangs(
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

    async def test_closing_ends_the_thread_and_a_key_can_be_used_after_that(self) -> None:
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

    def test_first_reading_fails_loudly(self) -> None:
        vault = Vault(failure=SecretsUnavailableError("Secret s is down."))
        keys = StoredKeys((place(vault),))
        with pytest.raises(SecretsUnavailableError):
            keys.find(SETTING)
        vault.failure = None
        assert keys.find(SETTING) is not None

    def test_a_clock_that_was_set_back_does_not_keep_a_key_for_ever(self) -> None:
        keys = place(Vault(), max_age_s=10)
        keys.open()
        assert not keys.is_due()
        vars(keys)["_due_after"] += 3600
        assert keys.is_due()

    def test_values_are_in_no_repr(self) -> None:
        credentials = stored(Vault())
        keys = vars(credentials)["_place"].keys
        assert "canary" not in repr(credentials) + repr(vars(credentials)) + repr(keys)
        assert "canary" not in repr(vars(FixedCredentials(OLD)))
