"""What vLLM 0.19.1 and SGLang 0.5.10.post1 say, by their own metric code (tools/expositions).

Two requests of 48 prompt tokens, 16 of them cached, and five verify steps of each; of three draft tokens a
step 3+1, 0+3, 2+2, 1+0 and 3+3 are accepted.
"""

from __future__ import annotations

import pytest

from draftgate.client.exchange import exchange
from draftgate.metrics.acceptance import acceptance_length, acceptance_rate, per_position_rates, window_rate
from draftgate.metrics.exposition import decode
from draftgate.metrics.reading import read
from draftgate.metrics.rules import Dialect, rules_for
from draftgate.metrics.sample import AcceptanceWindow, EngineSample, SpeculationCounters
from draftgate.metrics.state import EngineState, advance, state_of
from tests.standin.endpoint import StandinEngine
from tests.standin.expositions import SGLANG_CUDA12, VLLM_CUDA12, exposition

VLLM_RULES = rules_for(Dialect.VLLM, "0.19.1")
SGLANG_RULES = rules_for(Dialect.SGLANG, "0.5.10.post1")
EVERY = [f"{VLLM_CUDA12}-{name}" for name in ("idle", "busy", "done")] + [
    f"{SGLANG_CUDA12}-{name}" for name in ("idle", "busy", "done", "rest")
]


def vllm(name: str) -> EngineSample:
    found = read(exposition(f"{VLLM_CUDA12}-{name}"), VLLM_RULES)
    assert found is not None
    return found


def sglang(name: str) -> EngineSample:
    found = read(exposition(f"{SGLANG_CUDA12}-{name}"), SGLANG_RULES)
    assert found is not None
    return found


def test_vllm_counts_drafts() -> None:
    done = vllm("done")
    assert done.speculation == SpeculationCounters(10, 30, 18, (8, 6, 4))
    assert acceptance_rate(done.speculation) == 0.6
    assert acceptance_length(done.speculation) == 2.8
    assert per_position_rates(done.speculation) == (0.8, 0.6, 0.4)
    # Each request's first token comes from its prefill.
    assert (done.generated_tokens, done.prompt_tokens) == (2 + 10 + 18, 96)
    assert (done.prefix_hits, done.prefix_queries) == (32, 96)


def test_vllm_before_during_after() -> None:
    assert vllm("idle").speculation == SpeculationCounters(0, 0, 0, (0, 0, 0))
    assert [vllm(name).running for name in ("idle", "busy", "done")] == [0, 2, 0]
    assert vllm("busy").speculation == SpeculationCounters(8, 24, 12, (6, 4, 2))
    ttft, per_token = vllm("done").ttft, vllm("done").time_per_output_token
    assert ttft is not None
    assert per_token is not None
    assert ttft.count == 2
    assert ttft.sum == pytest.approx(0.4)
    # Five steps of 30 ms: 15 tokens of the one, 13 of the other, each less its first.
    assert per_token.count == 2
    assert per_token.sum == pytest.approx(0.15 / 14 + 0.15 / 14)


def test_sglang_rate_comes_from_its_length() -> None:
    """Its own rate counts the bonus token and the root: 9/16, where 5 of 12 draft tokens were accepted."""
    window = sglang("busy").window
    assert window == AcceptanceWindow(length=2.25, raw_rate=0.5625, slots=None)
    assert window_rate(window, SGLANG_RULES, topk=1, configured_slots=4) == pytest.approx(5 / 12)
    assert window_rate(window, SGLANG_RULES, topk=1, configured_slots=None) is None


def test_sglang_counts_tokens_live_and_at_the_end() -> None:
    busy, done = sglang("busy"), sglang("done")
    assert (busy.decode_tokens, busy.prefill_tokens, busy.generated_tokens) == (8 + 12, 96, None)
    assert (done.decode_tokens, done.generated_tokens, done.prompt_tokens) == (10 + 18, 30, 96)
    assert (done.prefix_hits, done.prefix_queries) == (32, 96)
    assert done.verify_steps is None
    ttft, per_token = done.ttft, done.time_per_output_token
    assert ttft is not None
    assert per_token is not None
    assert ttft.count == 2
    assert ttft.sum == pytest.approx(0.4)
    # Once per token of a step, all with the step's time divided by them.
    assert per_token.count == 28
    assert per_token.sum == pytest.approx(10 * 0.03)


def test_sglang_idle_engine_has_no_window_and_keeps_its_last_one() -> None:
    assert sglang("idle").window is None
    assert sglang("rest").window == sglang("done").window == sglang("busy").window


def test_sglang_gauges_outlive_their_requests_by_half_a_minute() -> None:
    """Its scheduler says nothing of an end: that is no stall as long as the limit is above 30 s."""
    assert [sglang(name).running for name in ("busy", "done", "rest")] == [2, 2, 0]
    assert [sglang(name).throughput for name in ("done", "rest")] == [pytest.approx(150), 0]
    progress, states = None, []
    for now, name in enumerate(("busy", "done", "done", "done", "done", "rest")):
        progress = advance(progress, sglang(name), 10.0 * now)
        states.append(state_of(sglang(name), progress, 10.0 * now, limit=60))
    assert states == [EngineState.BUSY] * 5 + [EngineState.IDLE]


@pytest.mark.parametrize("name", EVERY)
def test_the_standin_serves_them(name: str) -> None:
    rules = VLLM_RULES if name.startswith("vllm") else SGLANG_RULES
    with StandinEngine(exposition(name)) as engine:
        answer = exchange(f"{engine.url}/metrics", seconds=10, max_bytes=2**22)
    assert read(decode(answer.body), rules) == read(exposition(name), rules) is not None
