"""Whatever the text: a sample or an `UnusableAnswer`, and generated expositions come back as they were."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from draftgate.metrics.exposition import decode
from draftgate.metrics.faults import UnusableAnswer
from draftgate.metrics.reading import read
from draftgate.metrics.rules import RULES, Dialect, Rules, rules_for
from draftgate.metrics.sample import EngineSample, Histogram, SpeculationCounters
from tests.standin.expositions import SGLANG_LLAMA, VLLM, exposition

_NAMES = sorted(set().union(*(rules.wanted for rules in RULES)))
_LABELS = st.one_of(
    st.text(max_size=20), st.sampled_from(["0", "1", "decode", "+Inf", "nan", "0.1", '"', "\\"])
)
_LINE = st.builds(
    lambda name, label, value, rest: f'{name}{{le="{label}",position="{label}"}} {value}{rest}',
    st.sampled_from(_NAMES),
    _LABELS,
    st.one_of(st.floats().map(str), st.text(max_size=8)),
    st.text(max_size=4),
)
_TEXT = st.lists(st.one_of(_LINE, st.text(max_size=60)), max_size=12).map("\n".join)


def usable_or_refused(body: bytes, rules: Rules) -> None:
    try:
        found = read(decode(body), rules)
    except UnusableAnswer:
        return
    assert found is None or isinstance(found, EngineSample)


@given(st.one_of(st.binary(max_size=300), _TEXT.map(lambda text: (text + "\n").encode("utf-8", "replace"))))
@example(b'vllm:num_requests_running{a="\\')
@example(b"vllm:num_requests_running{} \n")
def test_any_text(body: bytes) -> None:
    for rules in RULES:
        usable_or_refused(body, rules)


@given(
    st.sampled_from([(VLLM, RULES[0]), (SGLANG_LLAMA, RULES[-1])]),
    st.lists(st.tuples(st.integers(0, 50_000), st.integers(0, 40), st.binary(max_size=12)), max_size=4),
)
def test_any_damage_to_a_real_exposition(
    whole: tuple[str, Rules], damage: list[tuple[int, int, bytes]]
) -> None:
    body = exposition(whole[0]).encode()
    for place, cut, inserted in damage:
        body = body[:place] + inserted + body[place + cut :]
    usable_or_refused(body, whole[1])


_COUNT = st.integers(0, 2**53).map(float)
_BUCKETS = st.lists(st.tuples(st.floats(0.001, 1e6), st.integers(0, 2**30)), max_size=12)
_HISTOGRAM = st.builds(
    lambda steps, rest, total: Histogram(
        tuple(
            (bound, float(sum(n for b, n in steps if b <= bound) + (rest if bound == math.inf else 0)))
            for bound in sorted({math.inf, *(bound for bound, _ in steps)})
        ),
        total,
    ),
    _BUCKETS,
    st.integers(0, 2**30),
    st.floats(0, 1e12),
)
_SPECULATION = st.builds(
    SpeculationCounters, _COUNT, _COUNT, _COUNT, st.lists(_COUNT, min_size=1, max_size=12).map(tuple)
)
_SAMPLE = st.builds(
    EngineSample,
    speculation=st.none() | _SPECULATION,
    window=st.none(),
    verify_steps=st.none(),
    finished_requests=st.none(),
    generated_tokens=_COUNT,
    prompt_tokens=_COUNT,
    decode_tokens=st.none(),
    prefill_tokens=st.none(),
    running=_COUNT,
    waiting=_COUNT,
    kv_usage=st.floats(0, 1),
    prefix_hits=_COUNT,
    prefix_queries=_COUNT,
    preemptions=_COUNT,
    ttft=_HISTOGRAM,
    time_per_output_token=_HISTOGRAM,
    throughput=st.none(),
)


class _AsVllm(Collector):
    """The sample as vLLM publishes it, by prometheus_client's own writer."""

    def __init__(self, sample: EngineSample, model: str) -> None:
        self._sample = sample
        self._labels = {"model_name": model, "engine": "0"}

    def collect(self) -> list[Metric]:
        sample = self._sample
        counters = {
            "vllm:generation_tokens": sample.generated_tokens,
            "vllm:prompt_tokens": sample.prompt_tokens,
            "vllm:prefix_cache_hits": sample.prefix_hits,
            "vllm:prefix_cache_queries": sample.prefix_queries,
            "vllm:num_preemptions": sample.preemptions,
        }
        gauges = {
            "vllm:num_requests_running": sample.running,
            "vllm:num_requests_waiting": sample.waiting,
            "vllm:kv_cache_usage_perc": sample.kv_usage,
        }
        if sample.speculation is not None:
            counters["vllm:spec_decode_num_drafts"] = sample.speculation.drafts
            counters["vllm:spec_decode_num_draft_tokens"] = sample.speculation.proposed
            counters["vllm:spec_decode_num_accepted_tokens"] = sample.speculation.accepted
        metrics: list[Metric] = []
        for name, value in counters.items():
            counter = CounterMetricFamily(name, "A counter.")
            counter.add_sample(f"{name}_total", self._labels, value or 0.0)
            metrics.append(counter)
        for name, value in gauges.items():
            gauge = GaugeMetricFamily(name, "A gauge.")
            gauge.add_sample(name, self._labels, value or 0.0)
            metrics.append(gauge)
        if sample.speculation is not None:
            name = "vllm:spec_decode_num_accepted_tokens_per_pos"
            counter = CounterMetricFamily(name, "A counter.")
            for i, value in enumerate(sample.speculation.accepted_per_position):
                counter.add_sample(f"{name}_total", {**self._labels, "position": str(i)}, value)
            metrics.append(counter)
        histograms = {
            "vllm:time_to_first_token_seconds": sample.ttft,
            "vllm:request_time_per_output_token_seconds": sample.time_per_output_token,
        }
        for name, histogram in histograms.items():
            assert histogram is not None
            family = HistogramMetricFamily(name, "A histogram.", labels=list(self._labels))
            buckets = [
                ("+Inf" if bound == math.inf else repr(bound), count) for bound, count in histogram.buckets
            ]
            family.add_metric(list(self._labels.values()), buckets, histogram.sum)
            metrics.append(family)
        return metrics


@given(_SAMPLE, st.text(max_size=10).filter(lambda text: text.isprintable()))
def test_round_trip(sample: EngineSample, model: str) -> None:
    text = decode(generate_latest(_AsVllm(sample, model)))
    assert read(text, rules_for(Dialect.VLLM, "0.33.0")) == sample
