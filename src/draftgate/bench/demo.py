"""The demo's two arms on the same prompts, seen by clients, by the engine and by its sidecar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from draftgate.bench.counters import EngineWindow
from draftgate.bench.lossless import Losslessness, compare_all
from draftgate.bench.run import Result, run
from draftgate.bench.stage import Arm
from draftgate.bench.subject import endpoint_of
from draftgate.bench.workload import Workload
from draftgate.client.candidates import next_token_logprobs
from draftgate.client.completion import CompletionRecord
from draftgate.client.exchange import exchange
from draftgate.errors import BenchRefused
from draftgate.metrics.acceptance import of_a_chain, since
from draftgate.metrics.exposition import decode, parse, select
from draftgate.metrics.sample import SpeculationCounters
from draftgate.sidecar import families

Answered = Callable[[CompletionRecord], None]
_SECONDS = 10.0
_MAX_BYTES = 2**22


@dataclass(frozen=True)
class WithDrafter:
    """The arm with the drafter; ``counters`` are the window's, as the sidecar exports them."""

    result: Result
    counters: SpeculationCounters


def sidecar_counters(sidecar_url: str, k: int) -> SpeculationCounters:
    """The speculation counters in a sidecar's ``/metrics``; of an engine at rest.

    Args:
        k: draft tokens proposed per verify step, for an engine that does not count them (SGLang).

    Raises:
        UnusableAnswer: no answer, or a damaged one.
        BenchRefused: the sidecar exports none.
    """
    names = (families.DRAFTS, families.PROPOSED, families.ACCEPTED, families.DECODED)
    positions = families.ACCEPTED_PER_POSITION.name
    answer = exchange(f"{sidecar_url}/metrics", seconds=_SECONDS, max_bytes=_MAX_BYTES)
    found = parse(select(decode(answer.body), {*(one.name for one in names), positions}))
    drafts, proposed, accepted, decoded = (
        found[one.name][0].value if found.get(one.name) else None for one in names
    )
    ordered = sorted(found.get(positions, ()), key=lambda one: int(one.labels["position"]))
    if drafts is not None and proposed is not None and accepted is not None:
        return SpeculationCounters(drafts, proposed, accepted, tuple(one.value for one in ordered))
    if drafts is not None and decoded is not None:
        return of_a_chain(drafts, decoded, k)
    raise BenchRefused("the sidecar exports no speculation counters", where=f"{sidecar_url}/metrics")


def _engine_counters(window: EngineWindow | None, k: int) -> SpeculationCounters | None:
    """What the engine itself counted in the window."""
    if window is None:
        return None
    if window.speculation is not None:
        return window.speculation
    if window.verify_steps is None or window.decode_tokens is None:
        return None
    return of_a_chain(window.verify_steps, window.decode_tokens, k)


def measure_with_drafter(arm: Arm, sidecar_url: str, workload: Workload, answered: Answered) -> WithDrafter:
    """Run the workload, reading the sidecar at both edges, when the engine is at rest.

    Raises:
        BenchRefused: the guard refuses the figures, or sidecar and engine count differently.
        EngineUnreachable: the engine or the sidecar does not answer.
    """
    k = arm.profile.speculation.num_speculative_tokens if arm.profile.speculation else 0
    edges: list[SpeculationCounters] = []
    result = run(
        endpoint_of(arm.profile, arm.command),
        workload,
        on_record=answered,
        at_rest=lambda: edges.append(sidecar_counters(sidecar_url, k)),
    )
    _refuse(result, arm)
    before, after = edges
    counters = since(after, before)
    own = _engine_counters(result.engine, k)
    if counters != own:
        raise BenchRefused(
            "sidecar and engine count differently",
            where=f"{sidecar_url}/metrics",
            why=f"sidecar {counters}, engine {own}",
        )
    return WithDrafter(result, counters)


def measure_plain(arm: Arm, workload: Workload, answered: Answered) -> Result:
    """Run the workload without the drafter.

    Raises:
        BenchRefused: the guard refuses the figures.
        EngineUnreachable: the engine does not answer.
    """
    result = run(endpoint_of(arm.profile, arm.command), workload, on_record=answered)
    _refuse(result, arm)
    return result


def compare_with_plain(arm: Arm, plain: Result, speculative: Result) -> Losslessness:
    """Compare the answers; where one differs, the plain engine, which must still run, is asked for the gap.

    Raises:
        EngineUnreachable: it does not answer.
    """
    engine = endpoint_of(arm.profile, arm.command)

    def ask(prefix: Sequence[int]) -> dict[int, float]:
        return next_token_logprobs(engine.base_url, engine.model, prefix, api_key=engine.api_key)

    return Losslessness(compare_all(plain.load.records, speculative.load.records, ask))


def answers(speculative: Result, plain: Result) -> Iterator[dict[str, object]]:
    """Every answer of both arms, to be compared with another engine's."""
    for arm, result in (("with drafter", speculative), ("without", plain)):
        for record in result.load.records:
            yield {
                "prompt": record.prompt_id,
                "arm": arm,
                "completion_tokens": record.completion_tokens,
                "text": record.text,
            }


def _refuse(result: Result, arm: Arm) -> None:
    if result.refused:
        raise BenchRefused(
            f"the figures of {arm.name} would not mean what they say",
            why="; ".join(finding.text for finding in result.refused),
            next_step="draftgate demo, when nothing else runs on this machine",
        )
