"""Every reason to refuse a figure, each alone, on an otherwise good run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draftgate.bench.counters import EngineWindow
from draftgate.bench.guard import WARNINGS, Code, Finding, findings
from draftgate.bench.load import Load
from draftgate.bench.measure import measure
from draftgate.bench.workload import Prompt, Workload
from draftgate.client.completion import CompletionRecord, Message, Role, Sampling
from draftgate.metrics.sample import SpeculationCounters

from .conftest import GOOD

WORKLOAD = Workload(
    prompts=tuple(Prompt(f"p{n}", (Message(Role.USER, f"q{n}"),)) for n in range(2)),
    sampling=Sampling(max_tokens=17),
    concurrency=4,
)
RECORDS = (GOOD, GOOD)
LOAD = Load(RECORDS, 0.0, 10.0, client_cpu=0.3, running=(4.0,) * 5)
ENGINE = EngineWindow(
    settled=True,
    reset=False,
    generated_tokens=34,
    prompt_tokens=20,
    preemptions=0,
    prefix_hits=2,
    prefix_queries=20,
    speculation=SpeculationCounters(10, 30, 22, (9, 7, 6)),
)
LOOPING = replace(GOOD, token_ids=(4,) * 17)
MANY = replace(LOAD, records=(*(GOOD,) * 9, LOOPING))


def found(
    *,
    workload: Workload = WORKLOAD,
    load: Load = LOAD,
    engine: EngineWindow | None = ENGINE,
    speculates: bool | None = True,
) -> tuple[Finding, ...]:
    return findings(workload, load, measure(load), engine, speculates=speculates)


def with_record(**changes: object) -> Load:
    changed: CompletionRecord = replace(GOOD, **changes)  # type: ignore[arg-type]
    return replace(LOAD, records=(GOOD, changed))


def test_a_good_run_has_no_finding() -> None:
    assert found() == ()


def test_a_good_run_at_the_thresholds_has_no_finding() -> None:
    load = replace(LOAD, client_cpu=0.8, running=(3.2,) * 5)
    assert found(load=load, engine=replace(ENGINE, prefix_hits=4)) == ()


def test_a_probe_in_the_window_is_no_traffic() -> None:
    load = replace(LOAD, records=(GOOD,) * 20)
    assert found(load=load, engine=replace(ENGINE, generated_tokens=341)) == ()


def test_one_request_at_a_time_is_always_reached() -> None:
    # An engine seen at rest between two of its steps, on a busy machine, says nothing about the load.
    workload = replace(WORKLOAD, concurrency=1)
    assert found(workload=workload, load=replace(LOAD, running=(0.0,) * 5)) == ()


@pytest.mark.parametrize(
    ("code", "changes", "text"),
    [
        (
            Code.NO_REQUEST,
            {"load": replace(LOAD, records=()), "engine": replace(ENGINE, generated_tokens=0)},
            "no request",
        ),
        (
            Code.FAILED,
            {"load": with_record(error="HTTP 500: oh")},
            "1 of 2 requests failed, the first (p) with: HTTP 500: oh",
        ),
        (Code.LOOPS, {"load": replace(LOAD, records=(LOOPING, LOOPING))}, "2 of 2 answers run in loops"),
        (Code.SOME_LOOPS, {"load": MANY, "engine": replace(ENGINE, generated_tokens=170)}, "1 of 10 answers"),
        (Code.CLIENT_BUSY, {"load": replace(LOAD, client_cpu=0.81)}, "81% of a core"),
        (Code.CONCURRENCY, {"load": replace(LOAD, running=(2.0,) * 5)}, "2.0 requests at a time where 4"),
        (Code.RESET, {"engine": replace(ENGINE, reset=True, generated_tokens=-7)}, "restarted"),
        (Code.UNSETTLED, {"engine": replace(ENGINE, settled=False)}, "still moved"),
        (Code.PREEMPTED, {"engine": replace(ENGINE, preemptions=3)}, "preempted 3 requests"),
        (Code.PREFIX_CACHE, {"engine": replace(ENGINE, prefix_hits=15)}, "75% of prompt tokens"),
        (
            Code.NO_DRAFTS,
            {"engine": replace(ENGINE, speculation=SpeculationCounters(0, 0, 0, (0, 0, 0)))},
            "no draft",
        ),
        (Code.NO_DRAFTS, {"engine": replace(ENGINE, speculation=None)}, "no draft"),
        (Code.UNASKED_DRAFTS, {"speculates": False}, "another runs"),
        (
            Code.OTHER_TRAFFIC,
            {"engine": replace(ENGINE, generated_tokens=40)},
            "generated 40 tokens, these requests got 34",
        ),
        (Code.UNEQUAL_LENGTHS, {"load": with_record(finish_reason="stop")}, "1 answers ended before 17"),
        (Code.COLD, {"workload": replace(WORKLOAD, warmup=0)}, "no warm-up"),
        (Code.NO_COUNTERS, {"engine": None}, "no counters"),
        (
            Code.NO_TOKEN_IDS,
            {"load": replace(LOAD, records=(replace(GOOD, token_ids=None),) * 2)},
            "no token ids",
        ),
    ],
)
def test_one_fault_gives_one_finding(code: Code, changes: dict[str, object], text: str) -> None:
    (finding,) = found(**changes)  # type: ignore[arg-type]
    assert finding.code is code
    assert text in finding.text
    assert finding.refuses is (code not in WARNINGS)


def test_every_code_is_tested_here() -> None:
    marks = test_one_fault_gives_one_finding.pytestmark  # type: ignore[attr-defined]
    assert {case[0] for case in marks[0].args[1]} == set(Code)


def test_what_only_warns() -> None:
    assert {Code.SOME_LOOPS, Code.UNEQUAL_LENGTHS, Code.COLD, Code.NO_COUNTERS, Code.NO_TOKEN_IDS} == WARNINGS


def test_no_speculation_and_no_counters_of_it_is_no_fault() -> None:
    # Showing an all-zero table of an engine without a drafter is a fault of its own (vLLM issue 15958).
    assert found(engine=replace(ENGINE, speculation=None), speculates=False) == ()


def test_few_samples_of_concurrency_say_nothing() -> None:
    assert found(load=replace(LOAD, running=(0.0,) * 4)) == ()


def test_the_end_token_is_ignored_on_request() -> None:
    workload = replace(WORKLOAD, sampling=replace(WORKLOAD.sampling, ignore_eos=True))
    assert found(workload=workload, load=with_record(finish_reason="stop")) == ()
