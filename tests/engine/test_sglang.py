"""A real SGLang with the drafter: what its metrics and our sidecar say is what its requests say."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from draftgate.bench.demo import sidecar_counters
from draftgate.bench.workload import load_prompts
from draftgate.client.exchange import exchange
from draftgate.data import data_root
from draftgate.host.processes import wait_until
from draftgate.metrics.acceptance import acceptance_length, length_since_start
from draftgate.metrics.exposition import decode
from draftgate.metrics.reading import read
from draftgate.metrics.requests import request_counters, total
from draftgate.metrics.rules import Dialect, rules_for
from draftgate.metrics.sample import EngineSample, SpeculationCounters
from tests.engine.conftest import RunningEngine, StartEngine
from tests.engine.test_sidecar import sidecar_of
from tests.unit.sidecar.conftest import Sidecar, value

pytestmark = pytest.mark.engine

PROMPTS = load_prompts(data_root() / "models" / "eval-prompts.jsonl")[:8]
K = 3
# As the profile sets decode-log-interval.
WINDOW = 10


def _sample(engine: RunningEngine) -> EngineSample:
    answer = exchange(f"{engine.url}/metrics", seconds=10, max_bytes=2**22)
    found = read(decode(answer.body), rules_for(Dialect.SGLANG, engine.loaded.pin.version))
    assert found is not None
    return found


def _generate(engine: RunningEngine, prompt: str) -> dict[str, Any]:
    # Long enough for the last window to lie within one request.
    sampling = {"temperature": 0, "max_new_tokens": 128, "ignore_eos": True}
    request = urllib.request.Request(
        f"{engine.url}/generate",
        json.dumps({"text": prompt, "sampling_params": sampling}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        found: dict[str, Any] = json.load(answer)["meta_info"]
    return found


def _at_rest(sidecar: Sidecar, drafts: float) -> SpeculationCounters:
    """The sidecar's counters, once the request's line is written: SGLang does so after it has answered."""
    assert wait_until(lambda: value(sidecar.metrics(), "draftgate_spec_drafts_total") == drafts, 30)
    return sidecar_counters(sidecar.url)


def _extremes(histogram: Sequence[int]) -> tuple[float, float]:
    """The least and the greatest mean length that ``WINDOW`` steps of one request can have."""
    lengths = sorted(1 + accepted for accepted, steps in enumerate(histogram) for _ in range(steps))
    assert len(lengths) >= 2 * WINDOW
    return sum(lengths[:WINDOW]) / WINDOW, sum(lengths[-WINDOW:]) / WINDOW


def test_the_sidecar_says_what_the_requests_say(start_engine: StartEngine, tmp_path: Path) -> None:
    told = tmp_path / "told"
    engine = start_engine("sglang-cpu-eagle", f"engine_flags.export-metrics-to-file-dir={told}")
    # SGLang's own warm-up request is counted too, and only then is it ready.
    ready = f"{engine.url}/ready"
    assert wait_until(lambda: exchange(ready, seconds=10, max_bytes=2**16).status == 200, 60)
    with sidecar_of(engine) as sidecar:
        before = _sample(engine)
        assert before.verify_steps is not None
        assert before.decode_tokens is not None
        first = _at_rest(sidecar, before.verify_steps)
        requests = [_generate(engine, prompt.messages[-1].content) for prompt in PROMPTS]
        counters = [found for request in requests if (found := request_counters(request))]
        assert len(counters) == len(PROMPTS)
        sums = total((first, *counters))

        # Counters equal the sums over the requests' own, one by one.
        assert _at_rest(sidecar, sums.drafts) == sums
        assert sums.drafts - first.drafts == sum(request["spec_verify_ct"] for request in requests)
        assert sums.accepted - first.accepted == sum(
            request["spec_num_correct_drafts"] for request in requests
        )
        after = _sample(engine)
        assert after.verify_steps == sums.drafts
        # A verify step gives what it accepts and one token of its own.
        assert after.decode_tokens == sums.accepted + sums.drafts
        assert length_since_start(after) == acceptance_length(sums)
        text = sidecar.metrics()
        assert value(text, "draftgate_spec_acceptance_length_since_start") == acceptance_length(sums)
        assert value(text, "draftgate_spec_acceptance_ratio_since_start") == sums.accepted / sums.proposed
        assert sum(request["spec_num_correct_drafts"] for request in requests) >= 0.4 * K * (
            sums.drafts - first.drafts
        )
        for name, field in (("generated", "completion_tokens"), ("prompt", "prompt_tokens")):
            counted = getattr(after, f"{name}_tokens") - getattr(before, f"{name}_tokens")
            assert counted == sum(request[field] for request in requests)
            assert value(text, f"draftgate_{name}_tokens_total") == getattr(after, f"{name}_tokens")

        # Gauges are of the last whole window of steps, which lies in the last request.
        length = value(text, "draftgate_spec_acceptance_length_recent")
        assert length is not None
        lowest, highest = _extremes(requests[-1]["spec_correct_drafts_histogram"])
        assert lowest <= length <= highest
        assert length * WINDOW == pytest.approx(round(length * WINDOW))
        ratio = value(text, "draftgate_spec_acceptance_ratio_recent")
        assert ratio is not None
        assert ratio == pytest.approx((length - 1) / K)
        age = value(text, "draftgate_spec_window_age_seconds")
        assert age is not None
        assert age >= 0

    lines = [json.loads(line) for path in told.iterdir() for line in path.read_text().splitlines()]
    assert len(lines) >= len(PROMPTS)
    # Its log of requests beside it too.
    logs = [engine.log, *told.iterdir(), *(tmp_path / "requests").iterdir()]
    assert len(logs) >= 3
    written = "".join(path.read_text() for path in logs)
    for line in lines:
        assert json.loads(line["request_parameters"]).keys().isdisjoint({"text", "input_ids"})
        assert line.keys().isdisjoint({"text", "output_ids"})
    for prompt in PROMPTS:
        assert json.dumps(prompt.messages[-1].content)[1:41] not in written
