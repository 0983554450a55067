"""Records → figures. Every definition is one function; where it is undefined the answer is None, never 0.

The definitions are those on which vLLM, inference-perf and genai-bench agree (aiperf calls this TPOT "ITL";
guidellm's field named ``time_per_output_token_ms`` includes the first token and is another thing).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from draftgate.bench.load import Load
from draftgate.client.completion import CompletionRecord


def ttft(record: CompletionRecord) -> float | None:
    """Time to first token, in seconds: first non-empty delta, reasoning included, less send time."""
    return None if record.error or record.first is None else record.first - record.sent


def e2e(record: CompletionRecord) -> float | None:
    """End-to-end latency, in seconds: last delta less send time; the usage chunk after it does not count."""
    return None if record.error or record.last is None else record.last - record.sent


def tpot(record: CompletionRecord) -> float | None:
    """Time per output token after the first, in seconds: (e2e - TTFT) / (tokens - 1).

    Tokens come from the engine's usage. Under speculation a chunk holds several tokens: gaps between chunks
    would show K+1 times the truth (vLLM issue 51454). Undefined below two tokens.
    """
    first, whole, tokens = ttft(record), e2e(record), record.completion_tokens
    if first is None or whole is None or tokens is None or tokens < 2:
        return None
    return (whole - first) / (tokens - 1)


@dataclass(frozen=True)
class Spread:
    """How values lie, in their unit. A percentile stands only where there are enough values to have one.

    Attributes:
        p90, p99: None below 10 and 100 values.
    """

    count: int
    mean: float
    p50: float
    p90: float | None
    p99: float | None


def spread(values: Iterable[float | None]) -> Spread | None:
    """The spread of the known values, or None without any."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return Spread(
        count=len(known),
        mean=statistics.fmean(known),
        p50=_percentile(known, 0.5),
        p90=_percentile(known, 0.9) if len(known) >= 10 else None,
        p99=_percentile(known, 0.99) if len(known) >= 100 else None,
    )


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Linear between neighbours, as numpy's default."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def distinct_bigram_ratio(token_ids: Sequence[int]) -> float | None:
    """Distinct pairs of neighbouring tokens / all such pairs, 0-1; low where text runs in a loop.

    Undefined below two tokens.
    """
    pairs = list(pairwise(token_ids))
    return len(set(pairs)) / len(pairs) if pairs else None


@dataclass(frozen=True)
class Figures:
    """What a load measured; seconds, tokens, tokens per second.

    Attributes:
        completed, failed: requests.
        prompt_tokens, completion_tokens: sums over completed requests, from usage.
        tokens_per_second: completion tokens / wall time of the whole window.
        in_flight: mean number of requests in flight over the window; the run's tail lowers it.
        distinct_bigram_ratio: mean over the answers; None where the engine sends no token ids.
        looping: answers below `LOOP`.
        cut_short: answers that ended before ``max_tokens`` by the model's end token.
    """

    completed: int
    failed: int
    seconds: float
    prompt_tokens: int
    completion_tokens: int
    tokens_per_second: float | None
    in_flight: float | None
    ttft: Spread | None
    tpot: Spread | None
    e2e: Spread | None
    distinct_bigram_ratio: float | None
    looping: int | None
    cut_short: int


# Below this greedy text runs in loops, which flatter a drafter.
LOOP = 0.3


def measure(load: Load) -> Figures:
    """The figures of ``load``; failed requests are counted and stand in nothing else."""
    good = [record for record in load.records if not record.error]
    tokens = sum(record.completion_tokens or 0 for record in good)
    busy = sum(record.closed - record.sent for record in load.records)
    ratios = [
        ratio
        for record in good
        if record.token_ids is not None and (ratio := distinct_bigram_ratio(record.token_ids)) is not None
    ]
    return Figures(
        completed=len(good),
        failed=len(load.records) - len(good),
        seconds=load.seconds,
        prompt_tokens=sum(record.prompt_tokens or 0 for record in good),
        completion_tokens=tokens,
        tokens_per_second=tokens / load.seconds if tokens and load.seconds > 0 else None,
        in_flight=busy / load.seconds if load.seconds > 0 else None,
        ttft=spread(map(ttft, good)),
        tpot=spread(map(tpot, good)),
        e2e=spread(map(e2e, good)),
        distinct_bigram_ratio=statistics.fmean(ratios) if ratios else None,
        looping=sum(ratio < LOOP for ratio in ratios) if ratios else None,
        cut_short=sum(record.finish_reason == "stop" for record in good),
    )
