"""The signal that ends an answer regularly."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from vectorforge.pipeline.stopping import QueryStopped, StopSignal


class Model:
    """Emits two pieces, then waits forever, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.waits = asyncio.Event()
        self.ended_by: list[str] = []

    async def texts(self) -> AsyncGenerator[str, None]:
        try:
            yield "one "
            yield "two "
            self.waits.set()
            if self.error is not None:
                raise self.error
            await asyncio.Event().wait()
        except BaseException as exc:
            self.ended_by.append(type(exc).__name__)
            raise


async def read(model: Model, stop: StopSignal, heard: list[str]) -> None:
    async for text in stop.interrupting(model.texts()):
        heard.append(text)  # noqa: PERF401 - also before an error


async def test_stop_interrupts_wait_for_next_token() -> None:
    model, stop, heard = Model(), StopSignal(), list[str]()
    reading = asyncio.create_task(read(model, stop, heard))
    await model.waits.wait()
    stop.request()
    stop.request()
    with pytest.raises(QueryStopped):
        await reading
    assert (heard, model.ended_by) == (["one ", "two "], ["CancelledError"])
    assert reading.cancelling() == 0  # later awaits are not canceled


async def test_stop_between_tokens_ends_stream() -> None:
    model, stop, heard = Model(), StopSignal(), list[str]()
    texts = stop.interrupting(model.texts())
    heard.append(await anext(texts))
    stop.request()
    with pytest.raises(QueryStopped):
        await anext(texts)
    assert (heard, model.ended_by) == (["one "], ["GeneratorExit"])


async def test_stop_before_start_prevents_stream() -> None:
    model, stop = Model(), StopSignal()
    stop.request()
    with pytest.raises(QueryStopped):
        await read(model, stop, [])
    assert not model.waits.is_set()


@pytest.mark.parametrize("error", [TimeoutError("the vendor's"), RuntimeError("a bug")])
async def test_model_errors_pass_through_unchanged(error: Exception) -> None:
    stop, heard = StopSignal(), list[str]()
    with pytest.raises(type(error)) as caught:
        await read(Model(error), stop, heard)
    assert caught.value is error
    assert heard == ["one ", "two "]
