"""A real SGLang with the drafter: what its metrics say is what its requests say."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from draftgate.bench.workload import load_prompts
from draftgate.client.exchange import exchange
from draftgate.data import data_root
from draftgate.host.processes import wait_until
from draftgate.metrics.exposition import decode
from draftgate.metrics.reading import read
from draftgate.metrics.rules import Dialect, rules_for
from draftgate.metrics.sample import EngineSample
from tests.engine.conftest import RunningEngine, StartEngine

pytestmark = pytest.mark.engine

PROMPTS = 8
NEW_TOKENS = 64


def _sample(engine: RunningEngine) -> EngineSample:
    answer = exchange(f"{engine.url}/metrics", seconds=10, max_bytes=2**22)
    found = read(decode(answer.body), rules_for(Dialect.SGLANG, engine.loaded.pin.version))
    assert found is not None
    return found


def _generate(engine: RunningEngine, prompt: str) -> dict[str, Any]:
    send = {"text": prompt, "sampling_params": {"temperature": 0, "max_new_tokens": NEW_TOKENS}}
    request = urllib.request.Request(
        f"{engine.url}/generate", json.dumps(send).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def test_counters_equal_the_requests_own(start_engine: StartEngine) -> None:
    engine = start_engine("sglang-cpu-eagle")
    # SGLang's own warm-up request is counted too, and only then is it ready.
    ready = f"{engine.url}/ready"
    assert wait_until(lambda: exchange(ready, seconds=10, max_bytes=2**16).status == 200, 60)
    prompts = load_prompts(data_root() / "models" / "eval-prompts.jsonl")[:PROMPTS]
    before = _sample(engine)
    answers = [_generate(engine, prompt.messages[-1].content)["meta_info"] for prompt in prompts]
    after = _sample(engine)
    steps = sum(answer["spec_verify_ct"] for answer in answers)
    accepted = sum(answer["spec_num_correct_drafts"] for answer in answers)
    assert before.verify_steps is not None
    assert before.decode_tokens is not None
    assert after.verify_steps is not None
    assert after.decode_tokens is not None
    assert after.verify_steps - before.verify_steps == steps
    # A verify step gives what it accepts and one token of its own.
    assert after.decode_tokens - before.decode_tokens == accepted + steps
    assert accepted / (3 * steps) >= 0.4
    assert after.window is not None
    assert 1 <= after.window.length <= 4
