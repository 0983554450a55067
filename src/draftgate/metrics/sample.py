"""What an engine says about itself at one moment, the same for every engine and version."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Histogram:
    """A cumulative histogram.

    Attributes:
        buckets: (upper bound, observations at or below it), bounds ascending, the last one infinite.
        sum: of all observed values, in the histogram's unit.
    """

    buckets: tuple[tuple[float, float], ...]
    sum: float

    @property
    def count(self) -> float:
        return self.buckets[-1][1]


@dataclass(frozen=True, slots=True)
class SpeculationCounters:
    """Counters of speculative decoding since the engine started.

    Attributes:
        drafts: verify steps, one per request and engine step that had draft tokens.
        proposed: draft tokens that were verified.
        accepted: of these, the accepted ones; the bonus token of a step is not among them.
        accepted_per_position: steps in which at least i+1 draft tokens were accepted, for i = 0 … K-1.
    """

    drafts: float
    proposed: float
    accepted: float
    accepted_per_position: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class AcceptanceWindow:
    """Means over the last window that the engine closed; they stand still while it is idle.

    Attributes:
        length: tokens per verify step, bonus included, 1 … K+1.
        raw_rate: the engine's own rate; what it means depends on the version (`Rules.raw_rate_counts_bonus`).
        slots: N, tokens verified per step with the root, as the engine says it (K+1 in a chain).
    """

    length: float
    raw_rate: float | None
    slots: float | None


@dataclass(frozen=True, slots=True)
class EngineSample:
    """One reading of an engine's metrics; None is what this engine does not say.

    Counters are since the engine's start, tokens unless named otherwise.

    Attributes:
        speculation: exact counters (vLLM).
        window: window means (SGLang).
        verify_steps: verify steps of finished requests (SGLang from 0.5.13).
        finished_requests: requests behind ``generated_tokens`` where these move at a request's end only.
        generated_tokens: output tokens, the first one of each request included.
        prompt_tokens: prompt tokens, cached ones included.
        decode_tokens: output tokens counted at every step, without the first of each request, where
            ``generated_tokens`` moves at a request's end only.
        prefill_tokens: prompt tokens counted while they are computed or found in the cache, likewise.
        running, waiting: requests now.
        kv_usage: share of the KV cache in use, 0 … 1, mean over data-parallel ranks.
        prefix_hits, prefix_queries: prompt tokens found in, and looked up in, the prefix cache.
        preemptions: requests that lost their place in the KV cache.
        ttft: seconds from arrival to the first token.
        time_per_output_token: seconds per token after the first.
        throughput: tokens per second as the engine computes it.
    """

    speculation: SpeculationCounters | None = None
    window: AcceptanceWindow | None = None
    verify_steps: float | None = None
    finished_requests: float | None = None
    generated_tokens: float | None = None
    prompt_tokens: float | None = None
    decode_tokens: float | None = None
    prefill_tokens: float | None = None
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    prefix_hits: float | None = None
    prefix_queries: float | None = None
    preemptions: float | None = None
    ttft: Histogram | None = None
    time_per_output_token: Histogram | None = None
    throughput: float | None = None

    @property
    def live_tokens(self) -> float | None:
        """The counter of output tokens that moves at every step."""
        return self.generated_tokens if self.decode_tokens is None else self.decode_tokens

    @property
    def requests(self) -> float:
        """Requests that the engine holds, running or waiting."""
        return (self.running or 0) + (self.waiting or 0)
