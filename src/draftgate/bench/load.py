"""The closed loop: C workers, each sending its next request when its last one is answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from draftgate.client.completion import ChatRequest, CompletionRecord
from draftgate.client.stream import StreamClient

Gauge = Callable[[], Awaitable[float | None]]
SAMPLE_SECONDS = 0.5


@dataclass(frozen=True)
class Load:
    """What a closed loop did; times in seconds of the records' clock.

    Attributes:
        records: in the order of asking.
        started, ended: the window, from the first request's start to the last one's end.
        client_cpu: CPU time of the thread that reads the streams over the window's wall time; at 1.0 it did
            nothing but read.
        running: the engine's running requests, sampled only while all C requests were in flight.
    """

    records: tuple[CompletionRecord, ...]
    started: float
    ended: float
    client_cpu: float
    running: tuple[float, ...] = ()

    @property
    def seconds(self) -> float:
        return self.ended - self.started


async def closed_loop(
    client: StreamClient,
    requests: Iterable[ChatRequest],
    concurrency: int,
    *,
    running: Gauge | None = None,
    on_record: Callable[[CompletionRecord], None] = lambda record: None,
    clock: Callable[[], float] = time.monotonic,
) -> Load:
    """Send all ``requests``, ``concurrency`` at a time, and return what happened.

    Args:
        running: asked about twice a second for the engine's running requests.
        on_record: called after each request, for progress.
    """
    waiting = enumerate(requests)
    records: dict[int, CompletionRecord] = {}
    samples: list[float] = []
    in_flight = 0

    async def worker() -> None:
        nonlocal in_flight
        for number, request in waiting:
            in_flight += 1
            try:
                records[number] = await client.chat(request)
            finally:
                in_flight -= 1
            on_record(records[number])

    async def sample(gauge: Gauge) -> None:
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            full = in_flight == concurrency
            value = await gauge()
            if full and in_flight == concurrency and value is not None:
                samples.append(value)

    started, cpu = clock(), time.thread_time()
    sampler = asyncio.create_task(sample(running)) if running else None
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(worker())
        ended, cpu = clock(), time.thread_time() - cpu
    finally:
        if sampler:
            sampler.cancel()
    return Load(
        records=tuple(records[number] for number in sorted(records)),
        started=started,
        ended=ended,
        client_cpu=cpu / (ended - started) if ended > started else 0.0,
        running=tuple(samples),
    )
