from __future__ import annotations

import pytest

from draftgate.bench import demo
from draftgate.bench.demo import sidecar_counters
from draftgate.client.exchange import Answer
from draftgate.errors import BenchRefused
from draftgate.metrics.sample import SpeculationCounters

EXPOSITION = """\
# HELP draftgate_up 1
draftgate_up 1.0
draftgate_spec_drafts_total 10.0
draftgate_spec_proposed_tokens_total 30.0
draftgate_spec_accepted_tokens_total 24.0
draftgate_spec_accepted_tokens_per_position_total{position="1"} 8.0
draftgate_spec_accepted_tokens_per_position_total{position="0"} 9.0
draftgate_spec_accepted_tokens_per_position_total{position="2"} 7.0
"""


def served(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(demo, "exchange", lambda url, **limits: Answer(200, text.encode()))


def test_counters_are_read_by_position(monkeypatch: pytest.MonkeyPatch) -> None:
    served(monkeypatch, EXPOSITION)
    assert sidecar_counters("http://sidecar") == SpeculationCounters(10, 30, 24, (9, 8, 7))


def test_a_sidecar_of_a_plain_engine_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    served(monkeypatch, "draftgate_up 1.0\n")
    with pytest.raises(BenchRefused) as caught:
        sidecar_counters("http://sidecar")
    assert caught.value.where == "http://sidecar/metrics"
