"""What a real SGLang 0.5.20 said on a CPU: after its requests, while busy, and before the first one."""

from __future__ import annotations

import pytest

from draftgate.metrics.acceptance import window_rate
from draftgate.metrics.reading import read
from draftgate.metrics.rules import Dialect, rules_for
from draftgate.metrics.sample import AcceptanceWindow, EngineSample
from tests.standin.expositions import exposition

RULES = rules_for(Dialect.SGLANG, "0.5.20")


def sample(name: str) -> EngineSample:
    found = read(exposition(f"sglang-0.5.20-cpu-{name}"), RULES)
    assert found is not None
    return found


def test_after_its_requests_all_counters_agree() -> None:
    found = sample("eagle-busy-done")
    assert found.window == AcceptanceWindow(1.4736842105263157, 0.15789473684210525, 4)
    assert (found.decode_tokens, found.verify_steps, found.finished_requests) == (15234, 5351, 107)
    assert (found.running, found.waiting) == (0, 0)


def test_its_own_rate_is_the_one_derived_from_the_length() -> None:
    window = sample("eagle-busy-done").window
    assert window is not None
    assert window_rate(window, RULES, topk=1, configured_slots=4) == pytest.approx(window.raw_rate)


@pytest.mark.parametrize("name", ["eagle-idle", "plain-busy-done"])
def test_gauges_of_a_window_that_never_was_are_no_window(name: str) -> None:
    """They stand at 0 before the first window, and without a drafter for ever."""
    assert sample(name).window is None


def test_a_busy_engine_says_so() -> None:
    assert sample("eagle-busy").requests
