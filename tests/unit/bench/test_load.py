from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest

from draftgate.bench import load as module
from draftgate.bench.load import Load, closed_loop
from draftgate.client.completion import ChatRequest, CompletionRecord, Message, Role, Sampling
from draftgate.client.stream import StreamClient

from .conftest import GOOD


class Client:
    """A double that answers late requests sooner, and knows how many are in flight."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.seen: list[int] = []
        self.fail = False

    async def chat(self, request: ChatRequest) -> CompletionRecord:
        self.in_flight += 1
        self.seen.append(self.in_flight)
        # Turns of the event loop, not seconds: the order is the same on any machine.
        for _ in range(20 - int(request.prompt_id)):
            await asyncio.sleep(0)
        self.in_flight -= 1
        if self.fail:
            raise RuntimeError("a fault of the client's own")
        return replace(GOOD, prompt_id=request.prompt_id)


def requests(count: int) -> Iterator[ChatRequest]:
    for number in range(count):
        yield ChatRequest(str(number), "m", (Message(Role.USER, "x"),), Sampling(max_tokens=1))


def loaded(client: Client, count: int, concurrency: int, **options: object) -> Load:
    async def go() -> Load:
        return await closed_loop(cast(StreamClient, client), requests(count), concurrency, **options)  # type: ignore[arg-type]

    return asyncio.run(go())


@pytest.mark.parametrize("concurrency", [1, 3, 8])
def test_exactly_as_many_in_flight_as_asked(concurrency: int) -> None:
    # guidellm issue 70 was off by one; a forgotten semaphore of 1 once made a candidate 7-11 % slower.
    client = Client()
    loaded(client, 12, concurrency)
    assert max(client.seen) == concurrency
    assert client.seen[concurrency - 1 :] == [concurrency] * (13 - concurrency)


def test_records_stand_in_the_order_of_asking() -> None:
    assert [record.prompt_id for record in loaded(Client(), 12, 5).records] == [str(n) for n in range(12)]


def test_more_workers_than_requests() -> None:
    assert len(loaded(Client(), 2, 9).records) == 2


def test_progress_sees_every_record() -> None:
    seen: list[CompletionRecord] = []
    loaded(Client(), 4, 2, on_record=seen.append)
    assert sorted(record.prompt_id for record in seen) == ["0", "1", "2", "3"]


def test_a_fault_of_our_own_is_no_record() -> None:
    client = Client()
    client.fail = True
    with pytest.raises(ExceptionGroup) as caught:
        loaded(client, 3, 2)
    assert caught.group_contains(RuntimeError)


def test_samples_count_only_while_all_are_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLE_SECONDS", 0)
    client = Client()
    sampled: list[int] = []

    async def running() -> float | None:
        sampled.append(client.in_flight)
        return float(client.in_flight)

    load = loaded(client, 7, 3, running=running)
    assert set(load.running) == {3.0}
    assert min(sampled) < 3  # the tail was sampled too, and left out
