"""Which series of which engine and version say what: data, no reading.

Names and meanings were read in the engines' sources: vLLM 0.19.1 and 0.33.0 (v1/metrics/loggers.py,
v1/spec_decode/metrics.py), SGLang 0.5.10.post1 and 0.5.23 (observability/metrics_collector.py); a running
vLLM 0.32.0 and SGLang 0.5.16 agree with them.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace
from functools import cached_property


class Dialect(enum.StrEnum):
    """Whose metrics these are; the value is also the prefix of the series' names."""

    VLLM = "vllm"
    SGLANG = "sglang"


class Quantity(enum.StrEnum):
    """What a series can say; most are fields of `EngineSample`, the rest are parts of its fields."""

    DRAFTS = "drafts"
    PROPOSED = "proposed"
    ACCEPTED = "accepted"
    WINDOW_LENGTH = "window_length"
    WINDOW_RATE = "window_rate"
    WINDOW_SLOTS = "window_slots"
    VERIFY_STEPS = "verify_steps"
    FINISHED_REQUESTS = "finished_requests"
    GENERATED_TOKENS = "generated_tokens"
    PROMPT_TOKENS = "prompt_tokens"
    DECODE_TOKENS = "decode_tokens"
    PREFILL_TOKENS = "prefill_tokens"
    RUNNING = "running"
    WAITING = "waiting"
    KV_USAGE = "kv_usage"
    PREFIX_HITS = "prefix_hits"
    PREFIX_QUERIES = "prefix_queries"
    PREEMPTIONS = "preemptions"
    THROUGHPUT = "throughput"


class Kind(enum.Enum):
    """How a series behaves, and so how the values of several data-parallel ranks become one."""

    COUNTER = enum.auto()  # summed
    GAUGE = enum.auto()  # summed; not a number means no value
    MEAN = enum.auto()  # a share or a mean: averaged; not a number means no value


@dataclass(frozen=True)
class Rule:
    """One quantity from one series.

    Attributes:
        modes: values of the label ``mode`` that count; empty for a series without that label.
        scheduler: published by schedulers, so possibly by each tensor- or pipeline-parallel rank: one of them
            is taken per data-parallel rank, and of SGLang's priorities the total (``priority=""``).
    """

    quantity: Quantity
    series: str
    kind: Kind = Kind.COUNTER
    modes: frozenset[str] = frozenset()
    scheduler: bool = False


@dataclass(frozen=True)
class Rules:
    """How to read one engine from version ``since`` on.

    Attributes:
        per_position: the counter with a label ``position``, if there is one.
        ttft, time_per_output_token: names of histograms, without suffix; the first one that is there counts.
        always: there from the first answer on in every version, so an answer without them was cut.
        together: there all or none, likewise.
        raw_rate_counts_bonus: whether the engine's own acceptance rate counts the bonus token.
    """

    dialect: Dialect
    since: tuple[int, ...]
    scalars: tuple[Rule, ...]
    per_position: str | None
    ttft: tuple[str, ...]
    time_per_output_token: tuple[str, ...]
    always: frozenset[Quantity] = frozenset()
    together: frozenset[Quantity] = frozenset()
    raw_rate_counts_bonus: bool = False

    @cached_property
    def wanted(self) -> frozenset[str]:
        """Names of all sample lines that are read."""
        stems = (*self.ttft, *self.time_per_output_token)
        histograms = {stem + suffix for stem in stems for suffix in ("_bucket", "_sum", "_count")}
        position = {self.per_position} if self.per_position else set()
        return frozenset({rule.series for rule in self.scalars} | histograms | position)


_VLLM = Rules(
    dialect=Dialect.VLLM,
    since=(0, 19, 1),
    scalars=(
        Rule(Quantity.DRAFTS, "vllm:spec_decode_num_drafts_total"),
        Rule(Quantity.PROPOSED, "vllm:spec_decode_num_draft_tokens_total"),
        Rule(Quantity.ACCEPTED, "vllm:spec_decode_num_accepted_tokens_total"),
        Rule(Quantity.GENERATED_TOKENS, "vllm:generation_tokens_total"),
        Rule(Quantity.PROMPT_TOKENS, "vllm:prompt_tokens_total"),
        Rule(Quantity.RUNNING, "vllm:num_requests_running", Kind.GAUGE),
        Rule(Quantity.WAITING, "vllm:num_requests_waiting", Kind.GAUGE),
        Rule(Quantity.KV_USAGE, "vllm:kv_cache_usage_perc", Kind.MEAN),  # 0 … 1, despite its name
        Rule(Quantity.PREFIX_HITS, "vllm:prefix_cache_hits_total"),
        Rule(Quantity.PREFIX_QUERIES, "vllm:prefix_cache_queries_total"),
        Rule(Quantity.PREEMPTIONS, "vllm:num_preemptions_total"),
    ),
    per_position="vllm:spec_decode_num_accepted_tokens_per_pos_total",
    ttft=("vllm:time_to_first_token_seconds",),
    # Not inter_token_latency_seconds: vLLM observes it once per engine step, which is several tokens.
    time_per_output_token=("vllm:request_time_per_output_token_seconds",),
    always=frozenset(
        {
            Quantity.GENERATED_TOKENS,
            Quantity.PROMPT_TOKENS,
            Quantity.RUNNING,
            Quantity.WAITING,
            Quantity.KV_USAGE,
            Quantity.PREFIX_HITS,
            Quantity.PREFIX_QUERIES,
            Quantity.PREEMPTIONS,
        }
    ),
    together=frozenset({Quantity.DRAFTS, Quantity.PROPOSED, Quantity.ACCEPTED}),
)


def _scheduler(quantity: Quantity, series: str, kind: Kind, *modes: str) -> Rule:
    return Rule(quantity, series, kind, frozenset(modes), scheduler=True)


_SGLANG_0_5_9 = Rules(
    dialect=Dialect.SGLANG,
    since=(0, 5, 9),
    scalars=(
        _scheduler(Quantity.WINDOW_LENGTH, "sglang:spec_accept_length", Kind.MEAN),
        _scheduler(Quantity.WINDOW_RATE, "sglang:spec_accept_rate", Kind.MEAN),
        _scheduler(Quantity.WINDOW_SLOTS, "sglang:spec_num_draft_tokens", Kind.MEAN),
        _scheduler(Quantity.DECODE_TOKENS, "sglang:realtime_tokens_total", Kind.COUNTER, "decode"),
        _scheduler(
            Quantity.PREFILL_TOKENS,
            "sglang:realtime_tokens_total",
            Kind.COUNTER,
            "prefill_compute",
            "prefill_cache",
        ),
        _scheduler(Quantity.RUNNING, "sglang:num_running_reqs", Kind.GAUGE),
        _scheduler(Quantity.WAITING, "sglang:num_queue_reqs", Kind.GAUGE),
        _scheduler(Quantity.KV_USAGE, "sglang:token_usage", Kind.MEAN),
        _scheduler(Quantity.PREEMPTIONS, "sglang:num_retracted_requests_total", Kind.COUNTER),
        _scheduler(Quantity.THROUGHPUT, "sglang:gen_throughput", Kind.GAUGE),
        # From 0.5.23 on these have a label is_streaming, over which they are summed.
        Rule(Quantity.GENERATED_TOKENS, "sglang:generation_tokens_total"),
        Rule(Quantity.PROMPT_TOKENS, "sglang:prompt_tokens_total"),
        Rule(Quantity.PREFIX_HITS, "sglang:cached_tokens_total"),
    ),
    per_position=None,  # only in each request's meta_info, and in the file of --export-metrics-to-file
    ttft=("sglang:time_to_first_token_seconds",),
    # The second one is per token too in SGLang (interval / new tokens, once per token); the first came later.
    time_per_output_token=(
        "sglang:request_time_per_output_token_seconds",
        "sglang:inter_token_latency_seconds",
    ),
    raw_rate_counts_bonus=True,
)
# https://github.com/sgl-project/sglang/pull/23530
_SGLANG_0_5_11 = replace(_SGLANG_0_5_9, since=(0, 5, 11), raw_rate_counts_bonus=False)
_SGLANG_0_5_13 = replace(
    _SGLANG_0_5_11,
    since=(0, 5, 13),
    scalars=(
        *_SGLANG_0_5_11.scalars,
        Rule(Quantity.VERIFY_STEPS, "sglang:spec_verify_calls_total"),
        Rule(Quantity.FINISHED_REQUESTS, "sglang:num_requests_total"),
    ),
)

RULES = (_VLLM, _SGLANG_0_5_9, _SGLANG_0_5_11, _SGLANG_0_5_13)


def release(version: str) -> tuple[int, ...] | None:
    """``0.5.10.post1`` → (0, 5, 10); None where no release number begins the text."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in found[1].split(".")) if found else None


def rules_for(dialect: Dialect, version: str | None) -> Rules:
    """The rules of the newest known version not above ``version``.

    An unknown version is read as the newest, an older one than is known as the oldest.
    """
    known = [rules for rules in RULES if rules.dialect is dialect]
    number = release(version) if version else None
    if number is None:
        return known[-1]
    return next((rules for rules in reversed(known) if rules.since <= number), known[0])
