"""Clients of vendors' SDKs: built once, exchanged with their key, closed when their last answer has ended."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
from pydantic import SecretStr

from vectorforge.credentials import FixedCredentials, KeyOrigin
from vectorforge.sdk_client import SDKClient

OLD, NEW = SecretStr("old-canary"), SecretStr("new-canary")


class Exchangeable:
    """Credentials in the hands of a test."""

    origin = KeyOrigin.SECRET

    def __init__(self, key: SecretStr = OLD) -> None:
        self.key = key
        self.refreshes = 0

    async def current(self) -> SecretStr:
        return self.key

    async def refresh(self, refused: SecretStr) -> SecretStr:
        self.refreshes += 1
        return self.key


class RefusedError(Exception):
    """What a vendor's SDK raises for a wrong key; quotes it, as vendors do."""


@dataclass(eq=False)
class Connection:
    key: str
    closed: bool = False


class Vendor:
    """An SDK whose clients know whether they are closed."""

    def __init__(self, credentials: Exchangeable | FixedCredentials) -> None:
        self.clients: list[Connection] = []
        self.good_key = OLD.get_secret_value()
        self.sdk = SDKClient(
            credentials, self.build, self.close, is_refusal=lambda exc: isinstance(exc, RefusedError)
        )

    def build(self, key: SecretStr) -> Connection:
        self.clients.append(Connection(key.get_secret_value()))
        return self.clients[-1]

    async def close(self, client: Connection) -> None:
        assert not client.closed
        client.closed = True

    async def request(self, client: Connection, _: AsyncExitStack) -> Connection:
        await asyncio.sleep(0)
        assert not client.closed
        if client.key != self.good_key:
            raise RefusedError(f"Incorrect API key provided: {client.key}")
        return client

    async def ask(self) -> Connection:
        async with AsyncExitStack() as stack:
            return await self.sdk.send(stack, self.request)


class TestClients:
    async def test_one_is_built_for_all(self) -> None:
        vendor = Vendor(FixedCredentials("old-canary"))
        await vendor.sdk.aclose()
        first, second = await asyncio.gather(vendor.ask(), vendor.ask())
        assert first is second is vendor.clients[0]
        await vendor.sdk.aclose()
        await vendor.sdk.aclose()
        assert first.closed
        assert await vendor.ask() is not first
        assert await asyncio.to_thread(asyncio.run, vendor.ask()) is vendor.clients[2]

    async def test_one_that_failed_is_built_again(self) -> None:
        vendor = Vendor(Exchangeable())
        attempts: list[None] = []

        def build(key: SecretStr) -> Connection:
            attempts.append(None)
            if len(attempts) == 1:
                raise OSError("no certificates")
            return vendor.build(key)

        vendor.sdk = SDKClient(Exchangeable(), build, vendor.close, is_refusal=lambda _: False)
        with pytest.raises(OSError, match="no certificates"):
            await vendor.ask()
        assert (await vendor.ask()).key == "old-canary"

    async def test_the_old_one_is_closed_when_its_answers_have_ended(self) -> None:
        credentials = Exchangeable()
        vendor = Vendor(credentials)
        async with AsyncExitStack() as stack:
            old = await vendor.sdk.send(stack, vendor.request)
            credentials.key, vendor.good_key = NEW, NEW.get_secret_value()
            new = await vendor.ask()
            assert (new.key, old.closed) == ("new-canary", False)
        assert old.closed
        assert not new.closed
        assert await vendor.ask() is new

    async def test_the_old_one_is_closed_at_once_when_nobody_uses_it(self) -> None:
        credentials = Exchangeable()
        vendor = Vendor(credentials)
        old = await vendor.ask()
        credentials.key, vendor.good_key = NEW, NEW.get_secret_value()
        await vendor.ask()
        assert old.closed

    # C25
    async def test_a_refusal_is_tried_once_more_with_another_key(self) -> None:
        credentials = Exchangeable()
        vendor = Vendor(credentials)
        old = await vendor.ask()

        async def exchanged_meanwhile(client: Connection, stack: AsyncExitStack) -> Connection:
            credentials.key, vendor.good_key = NEW, NEW.get_secret_value()
            return await vendor.request(client, stack)

        async with AsyncExitStack() as stack:
            new = await vendor.sdk.send(stack, exchanged_meanwhile)
        assert (new.key, old.closed, credentials.refreshes) == ("new-canary", True, 1)

    @pytest.mark.parametrize("other", [OLD, NEW])
    async def test_a_key_that_stays_wrong_is_refused_once_or_twice_and_no_more(
        self, other: SecretStr
    ) -> None:
        credentials = Exchangeable()
        vendor = Vendor(credentials)
        vendor.good_key = "another"
        keys = []

        async def request(client: Connection, stack: AsyncExitStack) -> Connection:
            keys.append(client.key)
            credentials.key = other
            return await vendor.request(client, stack)

        async with AsyncExitStack() as stack:
            with pytest.raises(RefusedError) as caught:
                await vendor.sdk.send(stack, request)
        assert keys == ["old-canary", "new-canary"][: 2 if other is NEW else 1]
        assert credentials.refreshes == 1
        assert caught.value.__context__ is None  # a refusal of the old key would quote it
        assert "canary" not in str(vendor.sdk.without_key(caught.value))

    async def test_other_failures_pass(self) -> None:
        credentials = Exchangeable()
        vendor = Vendor(credentials)

        async def request(client: Connection, stack: AsyncExitStack) -> Connection:
            raise ConnectionResetError

        async with AsyncExitStack() as stack:
            with pytest.raises(ConnectionResetError) as caught:
                await vendor.sdk.send(stack, request)
        assert vendor.sdk.without_key(caught.value) is caught.value
        assert credentials.refreshes == 0

    async def test_an_old_key_is_still_taken_out_of_errors(self) -> None:
        credentials = Exchangeable()
        vendor = Vendor(credentials)
        await vendor.ask()
        credentials.key, vendor.good_key = NEW, NEW.get_secret_value()
        await vendor.ask()
        cleaned = vendor.sdk.without_key(RuntimeError("old-canary and new-canary"))
        assert str(cleaned) == "RuntimeError: ********** and **********"
