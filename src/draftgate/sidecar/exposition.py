"""One scrape's result → the text that Prometheus gets, built afresh each time. Pure.

Written here and not by prometheus_client, whose writer takes a third of the time that parsing an engine's
answer takes; its parser reads the result in the tests, and so does promtool.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from draftgate.metrics.acceptance import acceptance_rate, length_since_start, window_rate
from draftgate.metrics.faults import Fault
from draftgate.metrics.sample import EngineSample, Histogram
from draftgate.metrics.state import EngineState
from draftgate.sidecar import families as f
from draftgate.sidecar.config import SidecarConfig
from draftgate.sidecar.families import Family
from draftgate.sidecar.tracker import Observation


@dataclass(frozen=True)
class Scrape:
    """What became of one scrape.

    Attributes:
        duration: seconds, for asking and understanding.
        fault: why there is no sample, when the engine's answer could not be used.
    """

    observation: Observation
    duration: float
    fault: Fault | None = None


def no_engine() -> str:
    """The text of ``/metrics`` while nothing runs that could be asked."""
    states = [({"state": s.value}, float(s is EngineState.UNREACHABLE)) for s in EngineState]
    return _single(f.UP, 0.0) + _labelled(f.ENGINE_STATE, states)


def exposition(config: SidecarConfig, scrape: Scrape) -> str:
    """The text of ``/metrics``: what the engine does not say is left out, never 0."""
    observation, fault = scrape.observation, scrape.fault
    parts = [
        _single(f.UP, float(fault is None)),
        _labelled(f.PROFILE_INFO, [(_profile(config), 1.0)]),
        _labelled(
            f.EXPECTED_LENGTH, [({"source": one.source}, one.length)] if (one := config.expected) else []
        ),
        _single(f.SCRAPE_DURATION, scrape.duration),
        _labelled(f.SCRAPE_ERROR, [({"reason": fault.value}, 1.0)] if fault else []),
        _labelled(f.ENGINE_STATE, [({"state": s.value}, float(s is observation.state)) for s in EngineState]),
    ]
    if observation.sample is not None:
        parts += _acceptance(observation.sample, config, observation.window_age)
        parts += _load(observation.sample, observation.tokens_per_second)
    return "".join(parts)


def _profile(config: SidecarConfig) -> dict[str, str]:
    k = config.num_speculative_tokens
    return {
        "profile": config.profile,
        "engine": config.dialect.value,
        "engine_version": config.engine_version,
        "model": config.model,
        "drafter": config.drafter or "",
        "num_speculative_tokens": "" if k is None else str(k),
        "topk": "" if k is None else str(config.topk),
    }


def _acceptance(sample: EngineSample, config: SidecarConfig, window_age: float | None) -> Iterator[str]:
    counters, window = sample.speculation, sample.window
    yield _single(f.DRAFTS, counters.drafts if counters else sample.verify_steps)
    if counters is not None:
        yield _single(f.PROPOSED, counters.proposed)
        yield _single(f.ACCEPTED, counters.accepted)
        positions = enumerate(counters.accepted_per_position)
        yield _labelled(f.ACCEPTED_PER_POSITION, [({"position": str(i)}, value) for i, value in positions])
        if config.topk == 1:
            yield _single(f.RATE_SINCE_START, acceptance_rate(counters))
    yield _single(f.LENGTH_SINCE_START, length_since_start(sample))
    if window is not None:
        rate = window_rate(window, config.rules, topk=config.topk, configured_slots=config.slots)
        yield _single(f.RATE_RECENT, rate)
        yield _single(f.LENGTH_RECENT, window.length)
        yield _single(f.WINDOW_AGE, window_age)


def _load(sample: EngineSample, tokens_per_second: float | None) -> Iterator[str]:
    yield _single(f.GENERATED, sample.generated_tokens)
    yield _single(f.DECODED, sample.decode_tokens)
    yield _single(f.PROMPT, sample.prompt_tokens)
    yield _single(f.TOKENS_PER_SECOND, tokens_per_second)
    yield _single(f.RUNNING, sample.running)
    yield _single(f.WAITING, sample.waiting)
    yield _single(f.KV_USAGE, sample.kv_usage)
    yield _single(f.PREFIX_HITS, sample.prefix_hits)
    yield _single(f.PREFIX_QUERIES, sample.prefix_queries)
    yield _single(f.PREEMPTIONS, sample.preemptions)
    yield _histogram(f.TTFT, sample.ttft)
    yield _histogram(f.TIME_PER_OUTPUT_TOKEN, sample.time_per_output_token)


def _single(family: Family, value: float | None) -> str:
    return "" if value is None else f"{family.header}{family.name} {value!r}\n"


def _labelled(family: Family, samples: Iterable[tuple[Mapping[str, str], float]]) -> str:
    lines = [f"{family.name}{{{_labels(labels)}}} {value!r}\n" for labels, value in samples]
    return family.header + "".join(lines) if lines else ""


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items() if value)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _histogram(family: Family, histogram: Histogram | None) -> str:
    if histogram is None:
        return ""
    name = family.name
    lines = [
        f'{name}_bucket{{le="{"+Inf" if bound == math.inf else repr(bound)}"}} {count!r}\n'
        for bound, count in histogram.buckets
    ]
    return f"{family.header}{''.join(lines)}{name}_sum {histogram.sum!r}\n{name}_count {histogram.count!r}\n"
