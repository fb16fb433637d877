"""Export behind the queries of a process that no log writer reads for, such as a laptop's."""

import asyncio
from contextlib import suppress

from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.otlp.encoding import encode_trace
from vectorforge.otlp.exporter import OtlpExporter

MAX_WAITING = 1_000
"""Traces that wait at most; later ones are dropped."""
_MAX_BATCH = 100
_EXPORT_S = 15.0
_FLUSH_S = 2.0
"""Longest wait of a shutdown for the last traces."""


class BackgroundExport:
    """Exports traces in one task, which the first one starts.

    Args:
        exporter: Destination.
        with_texts: See ``encode_trace``.
        waits_s: Waits before the attempts of a batch; then it is dropped.
    """

    def __init__(
        self, exporter: OtlpExporter, *, with_texts: bool, waits_s: tuple[float, ...] = (0.0, 1.0, 5.0, 15.0)
    ) -> None:
        self._exporter = exporter
        self._with_texts = with_texts
        self._waits_s = waits_s
        self._waiting: asyncio.Queue[tuple[str, QueryLog]] = asyncio.Queue(MAX_WAITING)
        self._task: asyncio.Task[None] | None = None

    def offer(self, tenant_id: str, log: QueryLog) -> None:
        """Accept a record, and drop it if the queue is full or the record has no trace. Does not wait."""
        if log.trace is None:
            return
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            self._waiting.put_nowait((tenant_id, log))
        except asyncio.QueueFull:
            self._exporter.drop(1, "the queue is full.")

    async def aclose(self) -> None:
        """Export what waits, for at most 2 s, and end; safe to call twice."""
        task, self._task = self._task, None
        if task is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._waiting.join(), _FLUSH_S)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < _MAX_BATCH and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            await self._export(batch)
            for _ in batch:
                self._waiting.task_done()

    async def _export(self, batch: list[tuple[str, QueryLog]]) -> None:
        encoded = [encode_trace(tenant_id, log, with_texts=self._with_texts) for tenant_id, log in batch]
        traces = {str(number): trace for number, trace in enumerate(encoded)}
        for wait_s in self._waits_s:
            await asyncio.sleep(wait_s)
            failures = await self._exporter.export(traces, limit_s=_EXPORT_S)
            traces = {key: traces[key] for key in failures}
            if not traces:
                return
        self._exporter.drop(len(traces), f"{len(self._waits_s)} attempts failed.")
