"""Exposition text → `EngineSample`, by the rules of one engine and version. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from prometheus_client.samples import Sample

from draftgate.metrics.exposition import parse, select
from draftgate.metrics.faults import Fault, UnusableAnswer
from draftgate.metrics.rules import Dialect, Kind, Quantity, Rule, Rules
from draftgate.metrics.sample import AcceptanceWindow, EngineSample, Histogram, SpeculationCounters

_Found = Mapping[str, Sequence[Sample]]

# Labels that tell schedulers of one data-parallel rank apart; they publish the same numbers.
_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")


def read(text: str, rules: Rules) -> EngineSample | None:
    """What ``text`` says, or None where the engine answers without series of its own (statistics off).

    Raises:
        UnusableAnswer: the text is damaged, belongs to another engine, or has values that cannot be.
    """
    found = parse(select(text, rules.wanted))
    if not found:
        _require_metrics(text, rules.dialect)
        return None
    values = {rule.quantity: _scalar(rule, found.get(rule.series, ())) for rule in rules.scalars}
    present = {quantity for quantity, value in values.items() if value is not None}
    if not rules.always <= present or (rules.together & present and not rules.together <= present):
        raise UnusableAnswer(Fault.TRUNCATED)

    def take(quantity: Quantity) -> float | None:
        return values.get(quantity)

    ttft = _first_histogram(rules.ttft, found)
    time_per_output_token = _first_histogram(rules.time_per_output_token, found)
    if rules.always and (ttft is None or time_per_output_token is None):
        raise UnusableAnswer(Fault.TRUNCATED)
    hits = take(Quantity.PREFIX_HITS)
    return EngineSample(
        speculation=_speculation(values, rules, found),
        window=_window(values),
        verify_steps=take(Quantity.VERIFY_STEPS),
        finished_requests=take(Quantity.FINISHED_REQUESTS),
        generated_tokens=take(Quantity.GENERATED_TOKENS),
        prompt_tokens=take(Quantity.PROMPT_TOKENS),
        decode_tokens=take(Quantity.DECODE_TOKENS),
        prefill_tokens=take(Quantity.PREFILL_TOKENS),
        running=take(Quantity.RUNNING),
        waiting=take(Quantity.WAITING),
        kv_usage=take(Quantity.KV_USAGE),
        prefix_hits=hits,
        prefix_queries=_prefix_queries(values, hits),
        preemptions=take(Quantity.PREEMPTIONS),
        ttft=ttft,
        time_per_output_token=time_per_output_token,
        throughput=take(Quantity.THROUGHPUT),
    )


def _require_metrics(text: str, dialect: Dialect) -> None:
    """Tell an engine whose statistics are off from an answer that is not this engine's metrics."""
    lines = "\n" + text
    if any(f"\n{other}:" in lines for other in Dialect if other is not dialect):
        raise UnusableAnswer(Fault.WRONG_ENGINE)
    if "\n# TYPE " not in lines:
        raise UnusableAnswer(Fault.MALFORMED)


def _scalar(rule: Rule, series: Sequence[Sample]) -> float | None:
    if rule.modes:
        series = [one for one in series if one.labels.get("mode") in rule.modes]
    if rule.scheduler and len(series) > 1:
        series = _one_per_rank(series)
    values = [one.value for one in series if rule.kind is Kind.COUNTER or not math.isnan(one.value)]
    if not all(0 <= value < math.inf for value in values):
        raise UnusableAnswer(Fault.BAD_VALUE)
    if not values:
        return None
    return sum(values) / len(values) if rule.kind is Kind.MEAN else sum(values)


def _one_per_rank(series: Sequence[Sample]) -> list[Sample]:
    """One scheduler's series per data-parallel rank (and per any other label), the lowest ranks'."""

    def order(one: Sample) -> list[tuple[int, str]]:
        ranks = [one.labels.get(label, "") for label in _RANKS]
        return [(len(rank), rank) for rank in ranks]  # "2" before "10"

    chosen: dict[frozenset[tuple[str, str]], Sample] = {}
    for one in sorted(series, key=order):
        if one.labels.get("priority", "") == "":
            chosen.setdefault(frozenset((k, v) for k, v in one.labels.items() if k not in _RANKS), one)
    return list(chosen.values())


def _speculation(
    values: Mapping[Quantity, float | None], rules: Rules, found: _Found
) -> SpeculationCounters | None:
    drafts, proposed, accepted = (
        values.get(quantity) for quantity in (Quantity.DRAFTS, Quantity.PROPOSED, Quantity.ACCEPTED)
    )
    if rules.per_position is None or drafts is None or proposed is None or accepted is None:
        return None
    positions: dict[str, list[Sample]] = {}
    for one in found.get(rules.per_position, ()):
        positions.setdefault(one.labels.get("position", ""), []).append(one)
    counters = []
    for i in range(len(positions)):
        count = _scalar(Rule(Quantity.ACCEPTED, rules.per_position), positions.get(str(i), ()))
        if count is None:
            raise UnusableAnswer(Fault.TRUNCATED)
        counters.append(count)
    if not counters:
        raise UnusableAnswer(Fault.TRUNCATED)
    return SpeculationCounters(drafts, proposed, accepted, tuple(counters))


def _window(values: Mapping[Quantity, float | None]) -> AcceptanceWindow | None:
    """None before the first window: SGLang's gauge stands at 0 then, below the least possible length."""
    length = values.get(Quantity.WINDOW_LENGTH)
    if length is None or length < 1:
        return None
    return AcceptanceWindow(length, values.get(Quantity.WINDOW_RATE), values.get(Quantity.WINDOW_SLOTS))


def _prefix_queries(values: Mapping[Quantity, float | None], hits: float | None) -> float | None:
    """SGLang counts hits and prompt tokens at a request's end: its prompt tokens are what it looked up."""
    if Quantity.PREFIX_QUERIES in values:
        return values[Quantity.PREFIX_QUERIES]
    return None if hits is None else values.get(Quantity.PROMPT_TOKENS)


def _first_histogram(stems: Sequence[str], found: _Found) -> Histogram | None:
    for stem in stems:
        parts = [found.get(stem + suffix) for suffix in ("_bucket", "_sum", "_count")]
        if any(parts):
            buckets, sums, counts = (part or () for part in parts)
            return _histogram(buckets, sums, counts)
    return None


def _histogram(buckets: Sequence[Sample], sums: Sequence[Sample], counts: Sequence[Sample]) -> Histogram:
    """Sum over all labels but ``le``, and check that what comes out is a histogram."""
    by_bound: dict[float, float] = {}
    try:
        for one in buckets:
            bound = float(one.labels["le"])
            by_bound[bound] = by_bound.get(bound, 0.0) + one.value
    except (KeyError, ValueError):
        raise UnusableAnswer(Fault.MALFORMED) from None
    if math.inf not in by_bound or not sums or not counts:
        raise UnusableAnswer(Fault.TRUNCATED)
    ordered = tuple(sorted(by_bound.items()))
    total = sum(one.value for one in sums)
    rising = all(below[1] <= above[1] for below, above in pairwise(ordered))
    finite = all(0 <= value < math.inf for value in (total, *by_bound.values()))
    if not rising or not finite or ordered[-1][1] != sum(one.value for one in counts):
        raise UnusableAnswer(Fault.BAD_VALUE)
    return Histogram(ordered, total)
