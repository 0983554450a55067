"""A whole measurement on the double: edges, warm-up, load and guard together."""

from __future__ import annotations

import asyncio

import pytest

from draftgate.bench.endpoint import Endpoint, find_model
from draftgate.bench.guard import Code
from draftgate.bench.run import Result, _tell_but_ctrl_c, run
from draftgate.bench.workload import Prompt, Workload
from draftgate.client.completion import CompletionRecord, Message, Role, Sampling
from draftgate.errors import BenchRefused, EngineUnreachable
from draftgate.metrics.sample import SpeculationCounters
from tests.standin.chatting import ChattingEngine

PROMPTS = tuple(Prompt(f"p{n}", (Message(Role.USER, f"question {n}"),)) for n in range(6))
WORKLOAD = Workload(PROMPTS, Sampling(max_tokens=13), concurrency=2)


def codes(result: Result) -> set[Code]:
    return {finding.code for finding in result.findings}


def measured(engine: ChattingEngine, speculates: bool | None = True) -> Result:
    return run(Endpoint(engine.url, engine.model, speculates=speculates), WORKLOAD)


def test_a_measurement_joins_client_and_engine() -> None:
    seen: list[CompletionRecord] = []
    rests: list[int] = []
    with ChattingEngine() as engine:
        endpoint = Endpoint(engine.url, engine.model, speculates=True)
        result = run(endpoint, WORKLOAD, on_record=seen.append, at_rest=lambda _: rests.append(len(seen)))
    assert codes(result) == set()
    assert [record.prompt_id for record in result.load.records] == [f"p{n}" for n in range(6)]
    assert (result.figures.completed, result.figures.completion_tokens) == (6, 78)
    # The two warm-up requests are asked, and are in no figure and in no difference of counters.
    assert len(engine.requests) == 8
    assert result.engine is not None
    assert result.engine.generated_tokens == 78
    assert result.engine.speculation == SpeculationCounters(18, 54, 54, (18, 18, 18))
    assert (len(seen), rests) == (6, [0, 6])


@pytest.mark.parametrize(
    ("engine", "code"),
    [
        (ChattingEngine(fail_after=5), Code.FAILED),
        (ChattingEngine(counts_drafts=False), Code.NO_DRAFTS),
        (ChattingEngine(restart_after=4), Code.RESET),
    ],
    ids=["fails", "counts no drafts", "restarts"],
)
def test_a_bad_run_is_refused(engine: ChattingEngine, code: Code) -> None:
    with engine:
        result = measured(engine)
    assert code in {finding.code for finding in result.refused}


def test_an_engine_that_speculates_unasked_is_refused() -> None:
    with ChattingEngine() as engine:
        assert codes(measured(engine, speculates=False)) == {Code.UNASKED_DRAFTS}


def test_a_failed_warm_up_ends_it() -> None:
    with ChattingEngine(fail_after=0) as engine, pytest.raises(EngineUnreachable) as caught:
        measured(engine)
    assert caught.value.why == 'HTTP 500: {"error": {"message": "no more"}}'


def test_the_only_served_model_is_found() -> None:
    with ChattingEngine() as engine:
        assert find_model(engine.url, None, None) == "tiny-python"
        assert find_model(engine.url, None, "tiny-python") == "tiny-python"
        with pytest.raises(BenchRefused) as caught:
            find_model(engine.url, None, "other")
    assert caught.value.lines()[:3] == [
        "the engine does not serve 'other'",
        f"  where: {engine.url}",
        "  why:   it serves: tiny-python",
    ]
    with pytest.raises(EngineUnreachable):
        find_model(engine.url, None, None)


def test_a_task_that_ctrl_c_ended_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    try:
        _tell_but_ctrl_c(
            loop, {"message": "Task exception was never retrieved", "exception": KeyboardInterrupt()}
        )
        assert caplog.text == ""
        _tell_but_ctrl_c(
            loop, {"message": "Task exception was never retrieved", "exception": ValueError("odd")}
        )
        assert "odd" in caplog.text
    finally:
        loop.close()
