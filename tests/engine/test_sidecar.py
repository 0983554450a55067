"""The sidecar beside a real vLLM: equal counters at rest, its states, and a key that stays where it is."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from draftgate.sidecar.config import configure
from draftgate.sidecar.server import SidecarServer
from tests.engine.conftest import RunningEngine, StartEngine
from tests.unit.sidecar.conftest import Sidecar, reason, state, value

pytestmark = pytest.mark.engine

KEY = "sk-canary-5c1e"
# Ours, and vLLM's own, where one series of ours is one of theirs.
SAME = {
    "draftgate_spec_drafts_total": "vllm:spec_decode_num_drafts_total",
    "draftgate_spec_proposed_tokens_total": "vllm:spec_decode_num_draft_tokens_total",
    "draftgate_spec_accepted_tokens_total": "vllm:spec_decode_num_accepted_tokens_total",
    "draftgate_spec_accepted_tokens_per_position_total": "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    "draftgate_generated_tokens_total": "vllm:generation_tokens_total",
    "draftgate_prompt_tokens_total": "vllm:prompt_tokens_total",
    "draftgate_requests_running": "vllm:num_requests_running",
    "draftgate_requests_waiting": "vllm:num_requests_waiting",
    "draftgate_kv_cache_usage_ratio": "vllm:kv_cache_usage_perc",
    "draftgate_prefix_cache_hit_tokens_total": "vllm:prefix_cache_hits_total",
    "draftgate_prefix_cache_queried_tokens_total": "vllm:prefix_cache_queries_total",
    "draftgate_preemptions_total": "vllm:num_preemptions_total",
    **{
        f"draftgate_{ours}_seconds_{part}": f"vllm:{theirs}_seconds_{part}"
        for ours, theirs in (
            ("time_to_first_token", "time_to_first_token"),
            ("time_per_output_token", "request_time_per_output_token"),
        )
        for part in ("bucket", "sum", "count")
    },
}


@contextmanager
def sidecar_of(engine: RunningEngine, stall_seconds: float = 60.0) -> Iterator[Sidecar]:
    loaded = engine.loaded
    config = configure(loaded.profile, loaded.pin, engine.url, stall_seconds=stall_seconds)
    with SidecarServer("127.0.0.1", 0, lambda: config) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield Sidecar(server)
        finally:
            server.shutdown()


def generate(engine: RunningEngine, prompt: str, tokens: int) -> requests.Response:
    body = {
        "model": engine.loaded.profile.target.served_name,
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    headers = {"Authorization": f"Bearer {engine.key}"}
    return requests.post(f"{engine.url}/v1/completions", json=body, headers=headers, timeout=300)


def series(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Values by name, then by the labels that both sides have."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sample.labels[name] for name in ("le", "position") if name in sample.labels)
            found.setdefault(sample.name, {})[labels] = float(sample.value)
    return found


def until(check: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not check():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)


def equal_at_rest(engine: RunningEngine, sidecar: Sidecar) -> set[str]:
    """Compare all that both publish; the names of ours that were there."""
    until(lambda: state(sidecar.metrics()) == "idle", "idle")
    ours = series(sidecar.metrics())
    theirs = series(requests.get(f"{engine.url}/metrics", timeout=60).text)
    present = SAME.keys() & ours.keys()
    assert {name: ours[name] for name in present} == {name: theirs[SAME[name]] for name in present}
    return present


def test_with_drafter(start_engine: StartEngine, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text(KEY)
    engine = start_engine("vllm-cpu-eagle", f"server.api_key_file={key_file}")
    with sidecar_of(engine, stall_seconds=2.0) as sidecar, concurrent.futures.ThreadPoolExecutor() as pool:
        assert (reason(sidecar.metrics()), state(sidecar.metrics())) == (None, "idle")
        assert sidecar.get("/readyz").status_code == 200

        requests_ = [pool.submit(generate, engine, f"def add{i}(a, b):\n", 100) for i in range(4)]
        until(lambda: state(sidecar.metrics()) == "busy", "busy")
        assert all(request.result().status_code == 200 for request in requests_)
        assert equal_at_rest(engine, sidecar) == SAME.keys()
        text = sidecar.metrics()
        drafts, proposed, accepted = (
            value(text, f"draftgate_spec_{name}_total")
            for name in ("drafts", "proposed_tokens", "accepted_tokens")
        )
        assert drafts
        assert proposed
        assert accepted
        assert value(text, "draftgate_spec_acceptance_ratio_since_start") == accepted / proposed
        assert value(text, "draftgate_spec_acceptance_length_since_start") == 1 + accepted / drafts
        if promtool := shutil.which("promtool"):
            subprocess.run([promtool, "check", "metrics"], input=text, text=True, check=True)

        # The engine core stands still while the API process goes on answering: stalled, and not ready.
        long = pool.submit(generate, engine, "class Stack:\n", 900)
        until(lambda: state(sidecar.metrics()) == "busy", "busy")
        core = [process.pid for process in engine.session()[1:]]
        for pid in core:
            os.kill(pid, signal.SIGSTOP)
        until(lambda: state(sidecar.metrics()) == "stalled", "stalled")
        assert sidecar.get("/readyz").status_code == 503
        for pid in core:
            os.kill(pid, signal.SIGCONT)
        assert long.result().status_code == 200
        equal_at_rest(engine, sidecar)
        assert sidecar.get("/readyz").status_code == 200

        told = "".join(sidecar.get(path).text for path in ("/metrics", "/readyz", "/probe?debug=true", "/"))
        assert KEY not in told
        assert "class Stack" not in told

        for process in engine.session():
            os.kill(process.pid, signal.SIGKILL)
        until(lambda: state(sidecar.metrics()) == "unreachable", "unreachable")
        assert sidecar.get("/readyz").status_code == 503


def test_without_drafter(start_engine: StartEngine) -> None:
    engine = start_engine("vllm-cpu")
    with sidecar_of(engine) as sidecar:
        assert generate(engine, "import os\n", 20).status_code == 200
        present = equal_at_rest(engine, sidecar)
        assert present == {name for name in SAME if "_spec_" not in name}
        assert "draftgate_spec" not in sidecar.metrics()
