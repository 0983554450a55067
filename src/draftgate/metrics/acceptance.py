"""Acceptance, by one definition for every engine; formulae over counters and over window means. Pure.

Sources: vLLM's v1/spec_decode/metrics.py (docstring of SpecDecodingProm) and v1/core/sched/scheduler.py for
what its counters count; SGLang's observability/metrics_collector.py and its reporter for the window means.
"""

from __future__ import annotations

from draftgate.metrics.rules import Rules
from draftgate.metrics.sample import AcceptanceWindow, EngineSample, SpeculationCounters


def since(later: SpeculationCounters, earlier: SpeculationCounters) -> SpeculationCounters:
    """What was counted between two readings.

    A counter that fell, or another number of positions, means that the engine restarted in between: then all
    of ``later`` was counted since, as Prometheus' ``rate()`` takes it. All counters start anew together.
    """
    now, before = _flat(later), _flat(earlier)
    if len(now) != len(before) or any(a < b for a, b in zip(now, before, strict=True)):
        return later
    drafts, proposed, accepted, *positions = (a - b for a, b in zip(now, before, strict=True))
    return SpeculationCounters(drafts, proposed, accepted, tuple(positions))


def acceptance_rate(counters: SpeculationCounters) -> float | None:
    """accepted / proposed, 0 … 1; None before anything was proposed.

    In a chain only: of a tree's proposed nodes most cannot be accepted, whatever the drafter is worth.
    """
    return min(1.0, counters.accepted / counters.proposed) if counters.proposed else None


def acceptance_length(counters: SpeculationCounters) -> float | None:
    """1 + accepted / drafts: tokens per verify step, bonus token included, 1 … K+1; None before any draft."""
    return 1 + counters.accepted / counters.drafts if counters.drafts else None


def per_position_rates(counters: SpeculationCounters) -> tuple[float, ...] | None:
    """accepted_per_position[i] / drafts for i = 0 … K-1: unconditional, so never rising with i.

    The conditional rate of position i, given that i-1 was accepted, is the quotient of neighbours.
    """
    if not counters.drafts:
        return None
    return tuple(accepted / counters.drafts for accepted in counters.accepted_per_position)


def window_rate(
    window: AcceptanceWindow, rules: Rules, *, topk: int, configured_slots: int | None
) -> float | None:
    """Acceptance rate of the engine's last window, 0 … 1; None where it cannot be told.

    (L - 1) / (N - 1), with N from the engine where it says it (it can change while adapting), else as
    configured. Without N the engine's own rate serves where it means the same: SGLang before 0.5.11 published
    L / N, which is 1/N at zero acceptance (https://github.com/sgl-project/sglang/pull/23530).
    For a tree (topk > 1) there is no rate: N counts its nodes, and it falls as the tree widens.
    """
    if topk > 1:
        return None
    slots = window.slots if window.slots is not None and window.slots > 1 else configured_slots
    if slots is not None and slots > 1:
        return min(1.0, (window.length - 1) / (slots - 1))
    if rules.raw_rate_counts_bonus or window.raw_rate is None:
        return None
    return min(1.0, window.raw_rate)


def length_since_start(sample: EngineSample) -> float | None:
    """Tokens per verify step since the engine started, bonus token included.

    From exact counters where there are some. Else from tokens and verify steps, which SGLang counts at a
    request's end (managers/tokenizer_manager.py of 0.5.20): at rest from its decode tokens, counted at every
    step as they were accepted (scheduler_components/metrics_reporter.py), so that both are of the same
    requests; while some run, from the generated tokens less the first of each request, which prefill gave.
    These lack what a request's last step gave beyond its end, so this form is low, by up to K tokens per
    request.
    """
    if sample.speculation is not None:
        return acceptance_length(sample.speculation)
    if not sample.verify_steps:
        return None
    if sample.decode_tokens is not None and not sample.requests:
        return sample.decode_tokens / sample.verify_steps
    if sample.generated_tokens is None or sample.finished_requests is None:
        return None
    return (sample.generated_tokens - sample.finished_requests) / sample.verify_steps


def _flat(counters: SpeculationCounters) -> tuple[float, ...]:
    return (counters.drafts, counters.proposed, counters.accepted, *counters.accepted_per_position)
