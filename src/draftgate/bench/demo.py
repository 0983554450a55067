"""The demo's two arms on the same prompts, seen by clients, by the engine and by its sidecar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from draftgate.bench.lossless import Losslessness, compare_all, tie_nats
from draftgate.bench.run import Result, run
from draftgate.bench.stage import Arm
from draftgate.bench.subject import endpoint_of
from draftgate.bench.workload import Workload
from draftgate.client.candidates import next_token_logprobs
from draftgate.client.completion import CompletionRecord
from draftgate.client.exchange import exchange
from draftgate.errors import BenchRefused
from draftgate.host.processes import wait_until
from draftgate.metrics.acceptance import since
from draftgate.metrics.exposition import decode, parse, select
from draftgate.metrics.requests import total
from draftgate.metrics.rules import Dialect
from draftgate.metrics.sample import EngineSample, SpeculationCounters
from draftgate.sidecar import families

Answered = Callable[[CompletionRecord], None]
_SECONDS = 10.0
_MAX_BYTES = 2**22


@dataclass(frozen=True)
class WithDrafter:
    """The arm with the drafter; ``counters`` are the window's, as the sidecar exports them."""

    result: Result
    counters: SpeculationCounters


def sidecar_counters(sidecar_url: str) -> SpeculationCounters:
    """The speculation counters in a sidecar's ``/metrics``.

    Raises:
        UnusableAnswer: no answer, or a damaged one.
        BenchRefused: the sidecar exports none.
    """
    names = (families.DRAFTS.name, families.PROPOSED.name, families.ACCEPTED.name)
    positions = families.ACCEPTED_PER_POSITION.name
    answer = exchange(f"{sidecar_url}/metrics", seconds=_SECONDS, max_bytes=_MAX_BYTES)
    found = parse(select(decode(answer.body), {*names, positions}))
    if not all(found.get(name) for name in (*names, positions)):
        raise BenchRefused("the sidecar exports no speculation counters", where=f"{sidecar_url}/metrics")
    drafts, proposed, accepted = (found[name][0].value for name in names)
    ordered = sorted(found[positions], key=lambda one: int(one.labels["position"]))
    return SpeculationCounters(drafts, proposed, accepted, tuple(one.value for one in ordered))


def measure_with_drafter(arm: Arm, sidecar_url: str, workload: Workload, answered: Answered) -> WithDrafter:
    """Run the workload, reading the sidecar at both edges, when the engine is at rest.

    Raises:
        BenchRefused: the guard refuses the figures, or sidecar and engine count differently.
        EngineUnreachable: the engine or the sidecar does not answer.
    """
    edges: list[SpeculationCounters] = []

    def read(sample: EngineSample) -> None:
        counted = sample.speculation.drafts if sample.speculation else sample.verify_steps
        edges.append(sidecar_counters(sidecar_url))

        def level() -> bool:
            edges[-1] = sidecar_counters(sidecar_url)
            return edges[-1].drafts == counted

        # SGLang answers a request before it writes the line that the sidecar reads.
        wait_until(level, _SECONDS)

    result = run(endpoint_of(arm.profile, arm.command), workload, on_record=answered, at_rest=read)
    _refuse(result, arm)
    before, after = edges
    counters = since(after, before)
    told = result.engine.speculation if result.engine else None
    # Requests that never came as far as the last position do not name it.
    if told is None or counters != total((told,), len(counters.accepted_per_position)):
        raise BenchRefused(
            "sidecar and engine count differently",
            where=f"{sidecar_url}/metrics",
            why=f"sidecar {counters}, engine {told}",
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
        dialect = Dialect(arm.command.pin.engine.value)
        return next_token_logprobs(
            engine.base_url, engine.model, prefix, api_key=engine.api_key, dialect=dialect
        )

    tie = tie_nats(arm.profile.target.dtype)
    return Losslessness(compare_all(plain.load.records, speculative.load.records, ask, tie))


def answers(speculative: Result, plain: Result) -> Iterator[dict[str, object]]:
    """Every answer of both arms, to be compared with another engine's."""
    for arm, result in (("with drafter", speculative), ("without", plain)):
        for record in result.load.records:
            yield {
                "prompt": record.prompt_id,
                "arm": arm,
                "token_ids": record.token_ids,
                "text": record.text,
            }


def _refuse(result: Result, arm: Arm) -> None:
    if result.refused:
        raise BenchRefused(
            f"the figures of {arm.name} would not mean what they say",
            why="; ".join(finding.text for finding in result.refused),
            next_step="draftgate demo, when nothing else runs on this machine",
        )
