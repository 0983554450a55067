"""The engine's own counters at the window's edges: exact differences, not means of sampled gauges."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from draftgate.metrics.acceptance import since
from draftgate.metrics.sample import EngineSample, SpeculationCounters

Scrape = Callable[[], Awaitable[EngineSample]]


@dataclass(frozen=True)
class Edge:
    """One edge of the window: what the engine said, and whether it was at rest then."""

    sample: EngineSample
    settled: bool


async def edge(
    scrape: Scrape,
    *,
    limit: float = 10.0,
    period: float = 0.25,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Edge:
    """Scrape until nothing runs and two readings agree, at most ``limit`` seconds.

    An engine counts a step after it has sent the step's tokens, and SGLang counts a request at its end, so
    the reading right after the last answer may miss some.

    Raises:
        whatever ``scrape`` raises.
    """
    last = await scrape()
    for _ in range(max(1, round(limit / period))):
        await sleep(period)
        sample = await scrape()
        if not sample.requests and _counters(sample) == _counters(last):
            return Edge(sample, settled=True)
        last = sample
    return Edge(last, settled=False)


@dataclass(frozen=True)
class EngineWindow:
    """Differences of the engine's counters over the window; None where it does not publish one.

    Attributes:
        settled: at rest at both edges.
        reset: a counter went back, so the engine restarted in between and no difference means anything.
    """

    settled: bool
    reset: bool
    generated_tokens: float | None = None
    prompt_tokens: float | None = None
    preemptions: float | None = None
    prefix_hits: float | None = None
    prefix_queries: float | None = None
    speculation: SpeculationCounters | None = None


def window(before: Edge, after: Edge) -> EngineWindow:
    """What the engine counted between two edges."""
    old, new = before.sample, after.sample
    pairs = list(zip(_counters(old), _counters(new), strict=True))
    # A restarted engine may also lack a series at first, or (its prometheus registry) have fewer positions.
    reset = any(
        (was is not None and now is None) or (was is not None and now is not None and now < was)
        for was, now in pairs
    )
    return EngineWindow(
        settled=before.settled and after.settled,
        reset=reset,
        generated_tokens=_difference(old.generated_tokens, new.generated_tokens),
        prompt_tokens=_difference(old.prompt_tokens, new.prompt_tokens),
        preemptions=_difference(old.preemptions, new.preemptions),
        prefix_hits=_difference(old.prefix_hits, new.prefix_hits),
        prefix_queries=_difference(old.prefix_queries, new.prefix_queries),
        speculation=since(new.speculation, old.speculation) if new.speculation and old.speculation else None,
    )


def _counters(sample: EngineSample) -> tuple[float | None, ...]:
    speculation = sample.speculation
    return (
        sample.generated_tokens,
        sample.prompt_tokens,
        sample.decode_tokens,
        sample.preemptions,
        sample.prefix_hits,
        sample.prefix_queries,
        speculation.drafts if speculation else None,
        speculation.proposed if speculation else None,
        speculation.accepted if speculation else None,
    )


def _difference(was: float | None, now: float | None) -> float | None:
    return None if was is None or now is None else now - was
