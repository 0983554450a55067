"""The whole text of /metrics, for every fixture and for what goes wrong; the clock stands still."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from itertools import groupby

import pytest
from prometheus_client.parser import text_string_to_metric_families

from draftgate.metrics.faults import Fault
from draftgate.metrics.reading import read
from draftgate.metrics.rules import Dialect
from draftgate.metrics.state import EngineState
from draftgate.sidecar.config import Expectation, SidecarConfig
from draftgate.sidecar.exposition import Scrape, exposition
from draftgate.sidecar.families import FAMILIES
from draftgate.sidecar.tracker import Observation, Tracker
from tests.conftest import Golden
from tests.standin import expositions as e
from tests.unit.sidecar.conftest import CONFIG

SGLANG = replace(CONFIG, profile="sglang", dialect=Dialect.SGLANG, engine_version="0.5.16", model="ds")
OLD_SGLANG = replace(SGLANG, engine_version="0.5.10.post1")
OLD_VLLM = replace(CONFIG, engine_version="0.19.1")
PLAIN = replace(CONFIG, profile="vllm-cpu", drafter=None, num_speculative_tokens=None)

# The drafter of the fixture accepted nothing; the same engine with one that does, at work.
ACCEPTING = {
    "vllm:spec_decode_num_accepted_tokens_total": 600,
    'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="0"': 250,
    'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="1"': 200,
    'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="2"': 150,
    "vllm:num_requests_running": 2,
    "vllm:num_requests_waiting": 1,
    "vllm:kv_cache_usage_perc": 0.125,
}


def sidecar_text(config: SidecarConfig, *readings: tuple[float, str]) -> str:
    """What the last of some scrapes gives, each at its time, none taking any."""
    tracker = Tracker(config.stall_seconds)
    observations = [tracker.observe(read(text, config.rules), now) for now, text in readings]
    return exposition(config, Scrape(observations[-1], 0.0))


CASES = {
    "vllm": sidecar_text(CONFIG, (0, e.exposition(e.VLLM))),
    "vllm-busy": sidecar_text(
        CONFIG,
        (0, e.exposition(e.VLLM)),
        (15, e.edited(e.exposition(e.VLLM), ACCEPTING | {"vllm:generation_tokens_total": 1500})),
    ),
    "vllm-without-drafter": sidecar_text(PLAIN, (0, e.without(e.exposition(e.VLLM), "vllm:spec_decode"))),
    "sglang-llama": sidecar_text(SGLANG, (0, e.exposition(e.SGLANG_LLAMA))),
    "sglang-mla": sidecar_text(SGLANG, (0, e.exposition(e.SGLANG_MLA))),
    "sglang-mla-idle-since": sidecar_text(
        SGLANG, (0, e.exposition(e.SGLANG_MLA)), (45, e.exposition(e.SGLANG_MLA))
    ),
    "sglang-old": sidecar_text(
        OLD_SGLANG,
        (
            0,
            e.edited(
                e.without(e.exposition(e.SGLANG_LLAMA), "sglang:spec_num_"),
                {"sglang:spec_accept_length": 2.5, "sglang:spec_accept_rate": 0.625},
            ),
        ),
    ),
    "vllm-expected": sidecar_text(
        replace(CONFIG, expected=Expectation(2.9, "profile")), (0, e.exposition(e.VLLM))
    ),
    "vllm-cuda12": sidecar_text(
        OLD_VLLM,
        *(
            (float(i), e.exposition(f"{e.VLLM_CUDA12}-{name}"))
            for i, name in enumerate(("idle", "busy", "done"))
        ),
    ),
    "sglang-cuda12": sidecar_text(
        OLD_SGLANG,
        *((float(i), e.exposition(f"{e.SGLANG_CUDA12}-{name}")) for i, name in enumerate(("idle", "busy"))),
    ),
    "sglang-cuda12-rest": sidecar_text(
        OLD_SGLANG,
        *(
            (10.0 * i, e.exposition(f"{e.SGLANG_CUDA12}-{name}"))
            for i, name in enumerate(("idle", "busy", "done", "done", "done", "rest"))
        ),
    ),
    "sglang-tree": sidecar_text(
        replace(SGLANG, topk=4), (0, e.edited(e.exposition(e.SGLANG_MLA), {"sglang:spec_accept_length": 2.5}))
    ),
    "blind": exposition(CONFIG, Scrape(Observation(EngineState.BLIND), 0.0)),
    "unreachable": exposition(CONFIG, Scrape(Observation(EngineState.UNREACHABLE), 0.0, Fault.REFUSED)),
    "names-with-quotes": exposition(
        replace(PLAIN, model='a"b\\c\nd'), Scrape(Observation(EngineState.UNREADABLE), 0.0, Fault.EMPTY)
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_whole_text(name: str, golden: Golden) -> None:
    golden(f"sidecar/{name}.prom", CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_prometheus_reads_what_is_documented(name: str) -> None:
    """Every family is one of `FAMILIES`, once, of its kind, with its labels only; no series comes twice."""
    documented = {family.name: family for family in FAMILIES}
    parsed = list(text_string_to_metric_families(CASES[name]))
    exposed = [f"{metric.name}_total" if metric.type == "counter" else metric.name for metric in parsed]
    assert len(set(exposed)) == len(exposed)
    for metric, exposed_name in zip(parsed, exposed, strict=True):
        family = documented[exposed_name]
        assert metric.type == family.kind.value
        assert all(set(sample.labels) <= set(family.labels) for sample in metric.samples)
        series = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in metric.samples]
        assert len(set(series)) == len(series)


@pytest.mark.parametrize("name", CASES)
def test_promtool_has_no_complaint(name: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        if os.environ.get("CI") == "true":
            pytest.fail("promtool is not installed")
        pytest.skip("promtool is not installed (Debian: prometheus)")
    done = subprocess.run(
        [promtool, "check", "metrics"], input=CASES[name], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_family_is_seen_in_some_case() -> None:
    seen = {
        line.split()[2] for text in CASES.values() for line in text.splitlines() if line.startswith("# TYPE")
    }
    missing = {family.name for family in FAMILIES} - seen
    assert missing == set()


def test_lines_of_a_family_stand_together() -> None:
    for text in CASES.values():
        names = [line.split()[2] for line in text.splitlines() if line.startswith("#")]
        assert [name for name, _ in groupby(names)] == list(dict.fromkeys(names))


def test_counters_equal_the_engines_own() -> None:
    text = e.exposition(e.VLLM)
    for ours, theirs in (
        ("draftgate_spec_drafts_total", "vllm:spec_decode_num_drafts_total"),
        ("draftgate_spec_proposed_tokens_total", "vllm:spec_decode_num_draft_tokens_total"),
        ("draftgate_spec_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"),
    ):
        exact = e.edited(text, {theirs: "9.007199254740991e+15"})
        assert f"{ours} 9007199254740991.0\n" in sidecar_text(CONFIG, (0, exact))
