"""Counters at the window's edges."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pytest

from draftgate.bench.counters import Edge, EngineWindow, edge, window
from draftgate.metrics.sample import EngineSample, SpeculationCounters

BEFORE = EngineSample(
    speculation=SpeculationCounters(10, 30, 20, (9, 6, 5)),
    generated_tokens=40,
    prompt_tokens=100,
    running=0,
    waiting=0,
    prefix_hits=16,
    prefix_queries=100,
    preemptions=1,
)
AFTER = EngineSample(
    speculation=SpeculationCounters(14, 42, 29, (13, 9, 7)),
    generated_tokens=55,
    prompt_tokens=130,
    running=0,
    waiting=0,
    prefix_hits=16,
    prefix_queries=130,
    preemptions=1,
)


def test_differences() -> None:
    counted = SpeculationCounters(4, 12, 9, (4, 3, 2))
    assert window(Edge(BEFORE, True), Edge(AFTER, True)) == EngineWindow(
        True, False, 15, 30, 0, 0, 30, counted
    )


def test_what_an_engine_lacks_is_none() -> None:
    bare = EngineSample(generated_tokens=1)
    assert window(Edge(bare, True), Edge(replace(bare, generated_tokens=3), True)) == EngineWindow(
        True, False, generated_tokens=2
    )


@pytest.mark.parametrize(
    "after",
    [
        replace(AFTER, generated_tokens=39),
        replace(AFTER, speculation=SpeculationCounters(14, 42, 19, (9, 6, 4))),
        replace(AFTER, speculation=None),
    ],
)
def test_a_counter_that_went_back_is_a_reset(after: EngineSample) -> None:
    assert window(Edge(BEFORE, True), Edge(after, True)).reset


def test_both_edges_must_be_settled() -> None:
    assert not window(Edge(BEFORE, True), Edge(AFTER, False)).settled
    assert not window(Edge(BEFORE, False), Edge(AFTER, True)).settled


def scrapes(samples: Iterable[EngineSample]) -> tuple[list[float], Edge]:
    slept: list[float] = []
    given = iter(samples)

    async def scrape() -> EngineSample:
        return next(given)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    return slept, asyncio.run(edge(scrape, limit=1.0, period=0.25, sleep=sleep))


def test_an_edge_waits_until_two_readings_agree_and_nothing_runs() -> None:
    moving = replace(BEFORE, generated_tokens=50)
    slept, found = scrapes([BEFORE, moving, replace(moving, running=1), AFTER, AFTER])
    assert (slept, found) == ([0.25] * 4, Edge(AFTER, True))


def test_an_engine_that_never_rests_is_unsettled() -> None:
    slept, found = scrapes(replace(BEFORE, generated_tokens=n) for n in range(9))
    assert (len(slept), found.settled) == (4, False)
