"""The formulae of acceptance against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draftgate.metrics.acceptance import (
    acceptance_length,
    acceptance_rate,
    length_since_start,
    per_position_rates,
    since,
    window_rate,
)
from draftgate.metrics.rules import Dialect, rules_for
from draftgate.metrics.sample import AcceptanceWindow, EngineSample, SpeculationCounters

NONE = SpeculationCounters(0, 0, 0, (0, 0, 0))
# 100 verify steps with K = 3: 40 accepted nothing, 30 one, 20 two, 10 all three.
COUNTED = SpeculationCounters(100, 300, 100, (60, 30, 10))

BEFORE_0_5_11 = rules_for(Dialect.SGLANG, "0.5.10.post1")
SINCE_0_5_11 = rules_for(Dialect.SGLANG, "0.5.23")


def test_from_counters() -> None:
    assert acceptance_rate(COUNTED) == pytest.approx(1 / 3)
    assert acceptance_length(COUNTED) == 2.0
    assert per_position_rates(COUNTED) == (0.6, 0.3, 0.1)


def test_nothing_counted_is_unknown_not_zero() -> None:
    assert (acceptance_rate(NONE), acceptance_length(NONE), per_position_rates(NONE)) == (None, None, None)


def test_a_window_is_the_difference_of_its_edges() -> None:
    later = SpeculationCounters(150, 450, 200, (100, 65, 35))
    assert since(later, COUNTED) == SpeculationCounters(50, 150, 100, (40, 35, 25))
    assert since(COUNTED, COUNTED) == NONE


@pytest.mark.parametrize(
    "later",
    [
        SpeculationCounters(10, 30, 8, (5, 2, 1)),
        # More steps than before already, and still fewer accepted tokens.
        SpeculationCounters(120, 360, 20, (15, 4, 1)),
        # Started again with K = 5: longer, and nothing fell.
        SpeculationCounters(200, 1000, 200, (80, 60, 30, 20, 10)),
    ],
)
def test_after_a_restart_everything_was_counted_since(later: SpeculationCounters) -> None:
    assert since(later, COUNTED) == later


@pytest.mark.parametrize(
    ("length", "raw", "slots", "configured", "old", "new"),
    [
        # A = 40 of F = 40 steps, N = 4: L = 2, old raw rate L/N = 0.5, new raw rate A/(F(N-1)) = 1/3.
        (2.0, 0.5, None, 4, 1 / 3, None),
        (2.0, 1 / 3, 4.0, None, None, 1 / 3),
        # Nothing accepted: the old raw rate is 1/4, the rate is 0.
        (1.0, 0.25, None, 4, 0.0, None),
        (4.0, 1.0, None, 4, 1.0, 1.0),
        # The engine's N, which can change, goes before the profile's.
        (2.0, 0.2, 6.0, 4, None, 0.2),
        # Without N: the raw rate where it means acceptance, else nothing.
        (2.0, 1 / 3, None, None, None, 1 / 3),
    ],
)
def test_window_rate(
    length: float,
    raw: float,
    slots: float | None,
    configured: int | None,
    old: float | None,
    new: float | None,
) -> None:
    window = AcceptanceWindow(length, raw, slots)
    if old is not None or (slots is None and configured is None):
        got = window_rate(window, BEFORE_0_5_11, topk=1, configured_slots=configured)
        assert got == (None if old is None else pytest.approx(old))
    if new is not None:
        assert window_rate(window, SINCE_0_5_11, topk=1, configured_slots=configured) == pytest.approx(new)


def test_a_tree_has_no_rate() -> None:
    window = AcceptanceWindow(3.0, 0.1, 16.0)
    assert window_rate(window, SINCE_0_5_11, topk=4, configured_slots=None) is None


def test_length_since_start() -> None:
    assert length_since_start(EngineSample(speculation=COUNTED)) == 2.0
    finished = EngineSample(verify_steps=905, generated_tokens=1813, finished_requests=3)
    assert length_since_start(finished) == 2.0
    # Decode tokens count for requests that still run, verify steps do not.
    assert length_since_start(replace(finished, decode_tokens=1900, running=1)) == 2.0
    assert length_since_start(replace(finished, decode_tokens=1900, waiting=1)) == 2.0
    assert length_since_start(replace(finished, decode_tokens=1991, running=0)) == 2.2
    assert length_since_start(EngineSample(generated_tokens=5)) is None
    assert length_since_start(EngineSample(verify_steps=0, generated_tokens=0, finished_requests=0)) is None
