"""Rates, ages and progress over sequences of readings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draftgate.metrics.sample import AcceptanceWindow, EngineSample
from draftgate.metrics.state import EngineState
from draftgate.sidecar.tracker import Tracker

SAMPLE = EngineSample(running=1, waiting=0, generated_tokens=0, prompt_tokens=5, kv_usage=0.0)


def tokens(count: float) -> EngineSample:
    return replace(SAMPLE, generated_tokens=count)


def rates(*readings: tuple[float, float]) -> list[float | None]:
    tracker = Tracker(60)
    return [tracker.observe(tokens(count), now).tokens_per_second for now, count in readings]


def test_tokens_per_second_between_two_scrapes() -> None:
    assert rates((0, 100), (15, 400), (30, 400)) == [None, 20.0, 0.0]


def test_a_second_scraper_does_not_shorten_the_stretch_below_a_second() -> None:
    assert rates((0, 0), (0.1, 10), (10, 100), (10.1, 102), (10.5, 110), (11, 120)) == [
        None,
        None,
        pytest.approx(10),
        pytest.approx(102 / 10.1),
        pytest.approx(110 / 10.5),
        pytest.approx(20),
    ]


def test_many_scrapers_do_not_push_out_the_point_that_is_needed() -> None:
    readings = [(i / 1000, i / 1000 * 50) for i in range(0, 3000, 7)]
    assert rates(*readings)[-1] == pytest.approx(50)


def test_after_a_restart_the_rate_begins_anew() -> None:
    assert rates((0, 500), (15, 30), (30, 60)) == [None, None, 2.0]


def test_the_engines_own_rate_serves_where_no_counter_is_live() -> None:
    sample = EngineSample(running=1, throughput=42.0)
    assert Tracker(60).observe(sample, 0).tokens_per_second == 42.0


def test_age_of_the_window() -> None:
    tracker = Tracker(60)
    window = replace(SAMPLE, window=AcceptanceWindow(2.0, None, 4.0), decode_tokens=10.0)
    moved = replace(window, decode_tokens=11.0)
    ages = [
        tracker.observe(sample, now).window_age
        for now, sample in ((0, window), (30, window), (40, moved), (55, moved), (60, SAMPLE))
    ]
    assert ages == [None, 30, 0, 15, None]


def test_an_engine_without_series_is_blind() -> None:
    assert Tracker(60).observe(None, 0).state is EngineState.BLIND


def test_progress_has_to_be_seen() -> None:
    tracker = Tracker(60)
    seen = [tracker.observe(tokens(count), now) for now, count in ((0, 1), (1, 1), (2, 2), (61, 2), (62, 2))]
    assert [one.progressing for one in seen] == [False, False, True, True, False]
    assert seen[-1].state is EngineState.STALLED
