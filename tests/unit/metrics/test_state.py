"""Idle, busy, stalled: sequences of readings, with the clock in the test's hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draftgate.metrics.sample import EngineSample
from draftgate.metrics.state import EngineState, Progress, advance, state_of

LIMIT = 60.0
IDLE = EngineSample(running=0, waiting=0, generated_tokens=10, prompt_tokens=5, kv_usage=0.0)
BUSY = replace(IDLE, running=2)


def states(*readings: tuple[float, EngineSample | None]) -> list[EngineState]:
    progress: Progress | None = None
    seen = []
    for now, sample in readings:
        progress = advance(progress, sample, now) if sample else progress
        seen.append(state_of(sample, progress if sample else None, now, LIMIT))
    return seen


def test_without_requests_it_is_idle_however_long() -> None:
    assert states((0, IDLE), (1000, IDLE)) == [EngineState.IDLE, EngineState.IDLE]


def test_an_idle_hour_does_not_count_against_the_first_request() -> None:
    assert states((0, IDLE), (3600, BUSY), (3659, BUSY), (3660, BUSY)) == [
        EngineState.IDLE,
        EngineState.BUSY,
        EngineState.BUSY,
        EngineState.STALLED,
    ]


@pytest.mark.parametrize(
    "moved",
    [
        replace(BUSY, generated_tokens=11),
        replace(BUSY, prompt_tokens=6),
        replace(BUSY, prefill_tokens=1),
        replace(BUSY, decode_tokens=1),
        replace(BUSY, kv_usage=0.25),  # all that vLLM shows of a long prefill in parts
        replace(BUSY, generated_tokens=0),  # started anew
    ],
)
def test_anything_that_moves_is_progress(moved: EngineSample) -> None:
    assert states((0, BUSY), (59, moved), (118, moved), (119, moved)) == [
        EngineState.BUSY,
        EngineState.BUSY,
        EngineState.BUSY,
        EngineState.STALLED,
    ]


def test_a_queue_alone_can_stall_and_recover() -> None:
    queue = replace(IDLE, waiting=4)
    assert states((0, queue), (60, queue), (61, replace(queue, generated_tokens=11)), (62, IDLE)) == [
        EngineState.BUSY,
        EngineState.STALLED,
        EngineState.BUSY,
        EngineState.IDLE,
    ]


def test_more_requests_are_no_progress() -> None:
    assert states((0, BUSY), (60, replace(BUSY, running=5, waiting=9)))[-1] is EngineState.STALLED


def test_an_engine_that_says_nothing_of_requests_is_blind() -> None:
    assert states((0, None), (1, EngineSample(generated_tokens=3))) == [EngineState.BLIND, EngineState.BLIND]


def test_movement_is_remembered_until_the_engine_is_idle() -> None:
    first = advance(None, BUSY, 0)
    second = advance(first, replace(BUSY, generated_tokens=11), 1)
    third = advance(second, replace(BUSY, generated_tokens=11), 2)
    assert [first.moved, second.moved, third.moved] == [False, True, True]
    assert not advance(third, IDLE, 3).moved
