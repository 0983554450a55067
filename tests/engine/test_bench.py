"""The bench on a real vLLM that speculates: what clients, counters and the guard say must fit together."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftgate.bench.counters import EngineWindow
from draftgate.bench.endpoint import Endpoint
from draftgate.bench.guard import Code
from draftgate.bench.run import run
from draftgate.bench.workload import Prompt, Workload, load_prompts
from draftgate.client.candidates import next_token_logprobs
from draftgate.client.completion import Message, Role, Sampling
from draftgate.data import data_root
from draftgate.errors import ExitCode
from draftgate.metrics.sample import SpeculationCounters
from tests.engine.conftest import RunningEngine, _running

pytestmark = pytest.mark.engine

K = 3
PROMPTS = data_root() / "models" / "eval-prompts.jsonl"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    with _running("vllm-cpu-eagle", tmp_path_factory.mktemp("engine")) as running:
        yield running


def endpoint(engine: RunningEngine) -> Endpoint:
    return Endpoint(engine.url, engine.loaded.profile.target.served_name, speculates=True)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_counters_agree_with_usage(engine: RunningEngine, concurrency: int) -> None:
    prompts = load_prompts(PROMPTS)[4 * concurrency : 4 * concurrency + 8]
    result = run(endpoint(engine), Workload(prompts, Sampling(max_tokens=64), concurrency=concurrency))
    # A tiny model may run into a loop here or there; that is for the demo to judge, on all prompts.
    assert {finding.code for finding in result.refused} <= {Code.LOOPS}
    window, figures = result.engine, result.figures
    assert isinstance(window, EngineWindow)
    assert (window.generated_tokens, window.prompt_tokens) == (
        figures.completion_tokens,
        figures.prompt_tokens,
    )
    counted = window.speculation
    assert isinstance(counted, SpeculationCounters)
    assert counted.accepted == sum(counted.accepted_per_position)
    assert counted.drafts < counted.proposed <= K * counted.drafts
    # A verify step emits its accepted drafts and one more; each request's first token comes from prefill. The
    # engine counts what lies past the end of an answer too, at most K tokens of its last step.
    emitted = counted.drafts + counted.accepted + len(prompts)
    assert 0 <= emitted - figures.completion_tokens <= K * len(prompts)
    # Several tokens came in one chunk, and usage counted every one of them.
    assert all(record.token_ids is not None for record in result.load.records)
    assert any(record.chunks < (record.completion_tokens or 0) for record in result.load.records)


def test_repeated_prompts_are_refused(engine: RunningEngine) -> None:
    text = "\n".join(f"def function_{n}(self, value):\n    return value + {n}\n" for n in range(20))
    prompts = (Prompt("long", (Message(Role.USER, text),)),)
    result = run(endpoint(engine), Workload(prompts, Sampling(max_tokens=8), repeats=4))
    assert Code.PREFIX_CACHE in {finding.code for finding in result.refused}


def test_the_engine_names_the_token_that_it_chose(engine: RunningEngine) -> None:
    where = endpoint(engine)
    (record,) = run(where, Workload(load_prompts(PROMPTS)[:1], Sampling(max_tokens=32))).load.records
    assert record.prompt_token_ids is not None
    assert record.token_ids is not None
    for index in (0, 7, 20):
        prefix = (*record.prompt_token_ids, *record.token_ids[:index])
        likeliest = next_token_logprobs(where.base_url, where.model, prefix, api_key=None)
        assert max(likeliest, key=lambda token: likeliest[token]) == record.token_ids[index]


def bench(engine: RunningEngine, profile: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    port = engine.loaded.profile.server.port
    argv = [sys.executable, "-m", "draftgate", "bench", profile, "--set", f"server.port={port}", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)


def test_the_verb_writes_a_receipt(engine: RunningEngine, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(PROMPTS.read_text().splitlines(keepends=True)[20:24]))
    done = bench(engine, "vllm-cpu-eagle", "--prompts", str(prompts), "--max-tokens", "32", "--json")
    assert done.returncode == ExitCode.OK, done.stderr
    receipt = json.loads(done.stdout)
    assert receipt["engine"]["version"] == engine.loaded.pin.version
    assert receipt["engine"]["num_speculative_tokens"] == K
    assert receipt["models"].keys() == {"target", "drafter"}
    assert 0 < receipt["figures"]["acceptance_rate"] <= 1
    assert len(receipt["figures"]["per_position"]) == K


def test_another_profile_than_runs_is_refused(engine: RunningEngine) -> None:
    done = bench(engine, "vllm-cpu", "--max-tokens", "4")
    assert done.returncode == ExitCode.BENCH_REFUSED
    assert "another runs" in done.stderr
    assert done.stdout == ""
