"""Published acceptance lengths: what the file says, and what follows for other K."""

from __future__ import annotations

import pytest

from draftgate.cli.load import load
from draftgate.metrics.baselines import Baseline, baselines, expected_length
from draftgate.sidecar.config import Expectation, configure

MLA = "lightseekorg/kimi-k2.5-eagle3-mla"
KIMI = "moonshotai/Kimi-K2.5"


@pytest.mark.parametrize("one", baselines(), ids=lambda one: f"{one.drafter}: {one.workload}")
def test_a_baseline_can_be(one: Baseline) -> None:
    assert all((one.workload, one.conditions, one.source))
    previous = 1.0
    for k, length in sorted(one.lengths.items()):
        assert previous <= length <= k + 1
        previous = length


def test_the_lowest_of_what_was_published() -> None:
    found = expected_length(MLA, KIMI, 3)
    assert found is not None
    assert (found[0], found[1].workload) == (2.75, "SPEED-Bench coding, no thinking")


def test_a_folder_is_what_it_is_named_after() -> None:
    assert expected_length("/models/kimi-k2.5-eagle3-mla", "/models/Kimi-K2.5/", 3) == expected_length(
        MLA, KIMI, 3
    )


def test_nothing_for_a_drafter_of_another_target() -> None:
    assert expected_length("AQ-MedAI/Kimi-K2-Instruct-eagle3", KIMI, 3) is None
    assert expected_length("/models/own-eagle3", KIMI, 3) is None


def test_bounds_between_and_beyond_the_measured_k_hold_for_what_was_measured() -> None:
    """Any part of a curve gives bounds for the rest that the rest keeps."""
    whole = next(one for one in baselines() if len(one.lengths) == 8)
    for kept in ((3,), (1, 8), (2, 5)):
        part = Baseline("d", "t", "w", "c", "s", {k: whole.lengths[k] for k in kept})
        bounds = {k: part.at_least(k) for k in whole.lengths}
        # The published figures are rounded.
        assert all(bounds[k] <= length + 0.005 for k, length in whole.lengths.items())
        assert all(bound > 1 for bound in bounds.values())
    assert Baseline("d", "t", "w", "c", "s", {4: 3.08}).at_least(3) == pytest.approx(1 + 3 * 2.08 / 4)


def test_what_the_sidecar_expects() -> None:
    def expected(*sets: str) -> Expectation | None:
        loaded = load("vllm-cpu-eagle", sets)
        return configure(loaded.profile, loaded.pin, "http://127.0.0.1:1").expected

    published = "the bundled evaluation prompts: models/training-report.json"
    assert expected() == Expectation(2.90, published)
    assert expected("speculation.num_speculative_tokens=1") == Expectation(1.75, published)
    assert expected("speculation.expected_acceptance_length=2.5") == Expectation(2.5, "profile")
    assert expected("drafter.model=/models/own") is None
    plain = load("vllm-cpu")
    assert configure(plain.profile, plain.pin, "http://127.0.0.1:1").expected is None
    loaded = load("vllm-eagle")
    config = configure(loaded.profile, loaded.pin, "http://127.0.0.1:1")
    assert config.expected is not None
    assert config.expected.length == pytest.approx(1 + 3 * 2.07 / 4)
