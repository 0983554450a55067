"""The demo's summary: two measurements and their comparison → ``demo-summary.json`` and its words. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TypeVar

from draftgate.bench.lossless import Losslessness, Outcome
from draftgate.bench.run import Result
from draftgate.errors import BenchRefused
from draftgate.metrics.acceptance import acceptance_length, acceptance_rate, per_position_rates
from draftgate.metrics.sample import SpeculationCounters

_T = TypeVar("_T")


@dataclass(frozen=True)
class Summary:
    """What ``demo-summary.json`` holds; the first eight keys are for whoever checks the demo.

    Attributes:
        acceptance_rate: accepted / proposed draft tokens.
        acceptance_length: tokens per verify step, bonus included.
        per_position: unconditional, position by position.
        tokens_per_second, plain_tokens_per_second: with and without the drafter.
        ttft_seconds: median time to first token with the drafter.
        lossless: every answer equal to the one without drafter, or different by a rounding tie.
        distinct_bigram_ratio: mean over the answers with the drafter.
        step_cost_ratio: r, time of one verify step / time of one plain step = acceptance length / speed-up.
        equal, ties, different: answers.
    """

    acceptance_rate: float
    acceptance_length: float
    per_position: tuple[float, ...]
    tokens_per_second: float
    plain_tokens_per_second: float
    ttft_seconds: float
    lossless: bool
    distinct_bigram_ratio: float
    plain_ttft_seconds: float
    speedup: float
    step_cost_ratio: float
    equal: int
    ties: int
    different: int
    prompts: int
    max_tokens: int
    concurrency: int
    engine: str

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    def rows(self) -> list[tuple[str, str, str]]:
        """Figure, with drafter, without."""
        return [
            (
                "throughput",
                f"{self.tokens_per_second:.1f} tok/s",
                f"{self.plain_tokens_per_second:.1f} tok/s",
            ),
            ("median TTFT", f"{self.ttft_seconds * 1e3:.0f} ms", f"{self.plain_ttft_seconds * 1e3:.0f} ms"),
            ("acceptance rate", f"{self.acceptance_rate:.3f}", ""),
            ("  per position", " / ".join(f"{rate:.3f}" for rate in self.per_position), ""),
            ("acceptance length", f"{self.acceptance_length:.2f} tokens per step", "1"),
            ("distinct bigrams", f"{self.distinct_bigram_ratio:.3f}", ""),
        ]

    def sentences(self) -> list[str]:
        """What the figures mean."""
        verdict = "faster" if self.speedup > 1 else "slower"
        return [
            f"text:  {self.equal} of {self.prompts} answers are equal token by token, "
            f"{self.ties} differ by a rounding tie, {self.different} otherwise",
            f"speed: {self.speedup:.2f} times, {verdict}: speed-up = AL / r, where a verify step gives "
            f"AL = {self.acceptance_length:.2f} tokens",
            f"       and takes as long as r = {self.step_cost_ratio:.2f} plain steps. "
            "One run each is no verdict,",
            "       and a tiny model tells nothing about a large one.",
        ]


def summarize(
    speculative: Result, counters: SpeculationCounters, plain: Result, losslessness: Losslessness, engine: str
) -> Summary:
    """The summary of both arms.

    Args:
        counters: the window's, from the sidecar.
        engine: its distribution and version.

    Raises:
        BenchRefused: a figure is undefined.
    """
    counts = losslessness.counts()
    ours, theirs = speculative.figures, plain.figures
    length = _known(acceptance_length(counters), "acceptance length")
    speed = _known(ours.tokens_per_second, "throughput with the drafter")
    plain_speed = _known(theirs.tokens_per_second, "throughput without the drafter")
    workload = plain.workload
    return Summary(
        acceptance_rate=_known(acceptance_rate(counters), "acceptance rate"),
        acceptance_length=length,
        per_position=_known(per_position_rates(counters), "acceptance per position"),
        tokens_per_second=speed,
        plain_tokens_per_second=plain_speed,
        ttft_seconds=_known(ours.ttft, "TTFT with the drafter").p50,
        lossless=losslessness.lossless,
        distinct_bigram_ratio=_known(ours.distinct_bigram_ratio, "distinct-bigram ratio"),
        plain_ttft_seconds=_known(theirs.ttft, "TTFT without the drafter").p50,
        speedup=speed / plain_speed,
        step_cost_ratio=length * plain_speed / speed,
        equal=counts[Outcome.EQUAL],
        ties=counts[Outcome.TIE],
        different=counts[Outcome.DIFFERENT] + counts[Outcome.UNKNOWN],
        prompts=workload.size,
        max_tokens=workload.sampling.max_tokens,
        concurrency=workload.concurrency,
        engine=engine,
    )


def _known(value: _T | None, name: str) -> _T:
    if value is None:
        raise BenchRefused(f"the {name} is undefined")
    return value
