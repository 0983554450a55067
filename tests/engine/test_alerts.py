"""The committed alerts over real engines: each fires for what it is for, and none while one only works hard.

The rules are the committed ones with a clock that runs faster (`time_lapse`); with DRAFTGATE_TEST_LAPSE=1 it
does not, and the saturated run takes its 20 minutes.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.cli.load import load as load_profile
from draftgate.data import data_root
from draftgate.host.processes import wait_until
from draftgate.sidecar.config import SidecarConfig, configure
from draftgate.sidecar.server import SidecarServer
from tests.engine.conftest import RunningEngine, StartEngine
from tests.engine.load import load
from tests.engine.prometheus import LAPSE, Prometheus, prometheus
from tools.wrongdrafters.faults import make

pytestmark = pytest.mark.engine

FACTOR = float(os.environ.get("DRAFTGATE_TEST_LAPSE", LAPSE))
SATURATED_SECONDS = 20 * 60 / FACTOR
WINDOW = f"{round(SATURATED_SECONDS)}s"
# More than the profiles let run at once, so that a queue stands.
THREADS = 24
STALL_SECONDS = min(60.0, 20.0 * LAPSE / FACTOR)


def watching(engine: RunningEngine, profile: str | None = None) -> SidecarConfig:
    """The sidecar's configuration for an engine, by its own profile or by another one."""
    loaded = load_profile(profile) if profile else engine.loaded
    config = configure(loaded.profile, loaded.pin, engine.url, stall_seconds=STALL_SECONDS)
    files = config.request_files
    # These engines write where a test starts them.
    return replace(config, request_files=files and replace(files, root=engine.log.parent, below="requests"))


@contextmanager
def watched(
    folder: Path, config: Callable[[], SidecarConfig | None], factor: float = FACTOR
) -> Iterator[Prometheus]:
    """A sidecar, and a Prometheus that scrapes it."""
    with SidecarServer("127.0.0.1", 0, config) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            with prometheus(folder / "prometheus", server.url.removeprefix("http://"), factor) as made:
                yield made
        finally:
            server.shutdown()


@pytest.fixture(params=["vllm", "sglang"])
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.mark.timeout(2400)
def test_saturated_then_stopped_then_killed(start_engine: StartEngine, tmp_path: Path, name: str) -> None:
    """Long prefills and a standing queue are no alert; SIGSTOP behind the server, and SIGKILL, are."""
    engine = start_engine(f"{name}-cpu-eagle")
    config = watching(engine)
    with watched(tmp_path, lambda: config) as prometheus:
        # Both: the bundled drafter knows sequences of 320 tokens, and low acceptance beyond is truly low.
        with load(engine, THREADS // 2), load(engine, THREADS // 2, long=True, tokens=8) as asked:
            begin = time.time()
            wait_until(lambda: False, SATURATED_SECONDS)
            report = _figures(prometheus, asked.served)
            print(report)
            assert prometheus.fired(begin) == set(), report
            # It was what it is called: a queue stood, and prompts were most of the work.
            assert (prometheus.value(f"avg_over_time(draftgate_requests_waiting[{WINDOW}])") or 0) > 4
            assert prometheus.query("draftgate_prompt_tokens_total > 3 * draftgate_generated_tokens_total")
            core = [process.pid for process in engine.session()[1:]]
            for pid in core:
                os.kill(pid, signal.SIGSTOP)
            prometheus.await_firing("DraftgateEngineStalled")
            for pid in core:
                os.kill(pid, signal.SIGCONT)
            prometheus.await_quiet()
        for process in engine.session():
            os.kill(process.pid, signal.SIGKILL)
        prometheus.await_firing("DraftgateEngineDown")
        assert prometheus.firing() == {"DraftgateEngineDown"}


def _figures(prometheus: Prometheus, served: int) -> str:
    asked = {
        "prompt tokens": f"increase(draftgate_prompt_tokens_total[{WINDOW}])",
        "generated tokens": f"increase(draftgate_generated_tokens_total[{WINDOW}])",
        "requests waiting, at most": f"max_over_time(draftgate_requests_waiting[{WINDOW}])",
        "requests waiting, on average": f"avg_over_time(draftgate_requests_waiting[{WINDOW}])",
        "requests running, on average": f"avg_over_time(draftgate_requests_running[{WINDOW}])",
        "KV cache, at most": f"max_over_time(draftgate_kv_cache_usage_ratio[{WINDOW}])",
        "acceptance length": "draftgate:spec_acceptance_length:rate5m",
        "expected": "draftgate_spec_expected_acceptance_length",
        "first token, s, p95": "histogram_quantile(0.95, draftgate_time_to_first_token_seconds_bucket)",
        "scrapes that failed": f"count_over_time((draftgate_up == 0)[{WINDOW}:5s])",
        "scrape, seconds at most": f"max_over_time(draftgate_scrape_duration_seconds[{WINDOW}])",
    }
    lines = [f"{what}: {prometheus.value(expression)}" for what, expression in asked.items()]
    return "\n".join([f"long ones served: {served} in {round(SATURATED_SECONDS)} s", *lines])


# One engine for each of these: what a rule goes by has the same name for both.
@pytest.mark.parametrize("name", ["vllm"])
@pytest.mark.timeout(1200)
def test_a_wrong_drafter(start_engine: StartEngine, tmp_path: Path, name: str) -> None:
    made = make(data_root() / "models" / "tiny-drafter", tmp_path / "wrong")["no-lm-head"]
    assert isinstance(made, Path)
    engine = start_engine(f"{name}-cpu-eagle", f"drafter.model={made}")
    # What it is watched by is the profile, with the drafter that should be served.
    config = watching(engine, f"{name}-cpu-eagle")
    with watched(tmp_path, lambda: config) as prometheus, load(engine, 4):
        prometheus.await_firing("DraftgateAcceptanceLow", "DraftgateSpeculationUseless")
        assert prometheus.firing() == {"DraftgateAcceptanceLow", "DraftgateSpeculationUseless"}


@pytest.mark.parametrize("name", ["sglang"])
@pytest.mark.timeout(1200)
def test_no_drafter_though_expected(start_engine: StartEngine, tmp_path: Path, name: str) -> None:
    engine = start_engine(f"{name}-cpu")
    config = watching(engine, f"{name}-cpu-eagle")
    with watched(tmp_path, lambda: config) as prometheus, load(engine, 4):
        prometheus.await_firing("DraftgateSpeculationOff")
        assert prometheus.firing() == {"DraftgateSpeculationOff"}
