"""What SGLang says of one finished request's speculation → the counters that it has no series for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest

from draftgate.metrics.sample import SpeculationCounters

# Newest first: renamed in 0.5.20, which writes the old names too (managers/tokenizer_manager.py).
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")
_PROPOSED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")


def request_counters(told: Mapping[str, object]) -> SpeculationCounters | None:
    """The counters of one request, from its ``meta_info``; None where it had no verify step.

    The histogram's entry i counts the steps that accepted i draft tokens.

    Raises:
        ValueError: the fields cannot be what they are named.
    """
    histogram = next((told[name] for name in _HISTOGRAM if told.get(name)), None)
    proposed = next((told[name] for name in _PROPOSED if told.get(name) is not None), None)
    if histogram is None:
        return None
    if not isinstance(histogram, list) or not all(isinstance(one, int) and one >= 0 for one in histogram):
        raise ValueError(f"no histogram: {histogram!r}")
    if proposed is None:
        raise ValueError("a histogram without the number of proposed drafts")
    positions = tuple(float(sum(histogram[i:])) for i in range(1, len(histogram)))
    return SpeculationCounters(float(sum(histogram)), float(str(proposed)), sum(positions, 0.0), positions)


def total(counters: Iterable[SpeculationCounters], positions: int = 0) -> SpeculationCounters:
    """The sum of ``counters``, with at least ``positions`` positions.

    A request that never came as far as the last position does not name it.
    """
    every = (SpeculationCounters(0.0, 0.0, 0.0, (0.0,) * positions), *counters)
    return SpeculationCounters(
        sum(one.drafts for one in every),
        sum(one.proposed for one in every),
        sum(one.accepted for one in every),
        tuple(map(sum, zip_longest(*(one.accepted_per_position for one in every), fillvalue=0.0))),
    )
