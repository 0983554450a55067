"""Every metric family that the sidecar exports: name, kind, meaning, source. Data; docs are made from it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property


class Kind(enum.StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Family:
    """One metric family.

    Attributes:
        name: as it is exposed.
        meaning: one sentence or two, without a full stop at the end.
        vllm, sglang: the series it is made of; None where that engine has none, so that the family is absent
            there. Without either it is draftgate's own and always there.
    """

    name: str
    kind: Kind
    meaning: str
    vllm: str | None = None
    sglang: str | None = None
    labels: tuple[str, ...] = ()

    @cached_property
    def header(self) -> str:
        """The HELP and TYPE lines."""
        sources = (("vLLM", self.vllm), ("SGLang", self.sglang))
        named = "; ".join(f"{engine} {series}" for engine, series in sources if series)
        source = f" Source: {named}." if named else ""
        return f"# HELP {self.name} {self.meaning}.{source}\n# TYPE {self.name} {self.kind.value}\n"


# SGLang has no series of them; each request's line tells them at its end.
_REQUESTS = "its requests' file (--export-metrics-to-file)"

UP = Family("draftgate_up", Kind.GAUGE, "1 if the engine's metrics could be had and understood, else 0")
PROFILE_INFO = Family(
    "draftgate_profile_info",
    Kind.GAUGE,
    "What is served, as its profile says; always 1, to be joined with",
    labels=(
        "profile",
        "engine",
        "engine_version",
        "model",
        "drafter",
        "num_speculative_tokens",
        "topk",
    ),
)
EXPECTED_LENGTH = Family(
    "draftgate_spec_expected_acceptance_length",
    Kind.GAUGE,
    "Acceptance length that the drafter should reach: the profile's own, else the lowest one published for "
    "this drafter, target and K. Absent without speculation, or where nothing is known",
    labels=("source",),
)
SCRAPE_DURATION = Family(
    "draftgate_scrape_duration_seconds",
    Kind.GAUGE,
    "Time that it took to have and understand the engine's metrics",
)
SCRAPE_ERROR = Family(
    "draftgate_scrape_error",
    Kind.GAUGE,
    "1 for the reason why draftgate_up is 0; absent otherwise",
    labels=("reason",),
)
ENGINE_STATE = Family(
    "draftgate_engine_state",
    Kind.GAUGE,
    "1 for the state that the engine is in, 0 for the others",
    labels=("state",),
)
DRAFTS = Family(
    "draftgate_spec_drafts_total",
    Kind.COUNTER,
    "Verify steps: one per request and engine step that had draft tokens (SGLang: of finished requests)",
    "vllm:spec_decode_num_drafts_total",
    "its requests' file, without it sglang:spec_verify_calls_total (from 0.5.13)",
)
PROPOSED = Family(
    "draftgate_spec_proposed_tokens_total",
    Kind.COUNTER,
    "Draft tokens proposed",
    "vllm:spec_decode_num_draft_tokens_total",
    _REQUESTS,
)
ACCEPTED = Family(
    "draftgate_spec_accepted_tokens_total",
    Kind.COUNTER,
    "Draft tokens accepted, bonus tokens left out",
    "vllm:spec_decode_num_accepted_tokens_total",
    _REQUESTS,
)
ACCEPTED_PER_POSITION = Family(
    "draftgate_spec_accepted_tokens_per_position_total",
    Kind.COUNTER,
    "Verify steps in which the draft token at this position, and so all before it, was accepted",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    _REQUESTS,
    labels=("position",),
)
RATE_SINCE_START = Family(
    "draftgate_spec_acceptance_ratio_since_start",
    Kind.GAUGE,
    "Accepted / proposed draft tokens since the engine started; for a window divide the counters' increases",
    "vllm:spec_decode_num_accepted_tokens_total / vllm:spec_decode_num_draft_tokens_total",
    _REQUESTS,
)
LENGTH_SINCE_START = Family(
    "draftgate_spec_acceptance_length_since_start",
    Kind.GAUGE,
    "Tokens per verify step since the engine started, bonus token included (SGLang without its requests' "
    "file, while requests run: low, by what each request's last step gave beyond its end)",
    "1 + vllm:spec_decode_num_accepted_tokens_total / vllm:spec_decode_num_drafts_total",
    "its requests' file, without it (from 0.5.13) at rest sglang:realtime_tokens_total{mode=decode} / "
    "sglang:spec_verify_calls_total, else "
    "(sglang:generation_tokens_total - sglang:num_requests_total) / sglang:spec_verify_calls_total",
)
RATE_RECENT = Family(
    "draftgate_spec_acceptance_ratio_recent",
    Kind.GAUGE,
    "Accepted / proposed draft tokens, mean of the engine's last log interval; holds its value when idle; "
    "absent for a tree of drafts",
    sglang="(sglang:spec_accept_length - 1) / (N - 1), N from sglang:spec_num_draft_tokens or the profile",
)
LENGTH_RECENT = Family(
    "draftgate_spec_acceptance_length_recent",
    Kind.GAUGE,
    "Tokens per verify step, bonus token included, mean of the engine's last log interval; "
    "holds its value when idle",
    sglang="sglang:spec_accept_length",
)
WINDOW_AGE = Family(
    "draftgate_spec_window_age_seconds",
    Kind.GAUGE,
    "Time since a scrape last saw output tokens move; the ..._recent gauges are no fresher. Absent at first",
    sglang="sglang:realtime_tokens_total{mode=decode}",
)
GENERATED = Family(
    "draftgate_generated_tokens_total",
    Kind.COUNTER,
    "Output tokens (SGLang: of finished requests)",
    "vllm:generation_tokens_total",
    "sglang:generation_tokens_total",
)
DECODED = Family(
    "draftgate_decode_tokens_total",
    Kind.COUNTER,
    "Output tokens at every step, without the first one of each request; where "
    "draftgate_generated_tokens_total moves at a request's end only",
    sglang="sglang:realtime_tokens_total{mode=decode}",
)
PROMPT = Family(
    "draftgate_prompt_tokens_total",
    Kind.COUNTER,
    "Prompt tokens, cached ones included (SGLang: of finished requests)",
    "vllm:prompt_tokens_total",
    "sglang:prompt_tokens_total",
)
TOKENS_PER_SECOND = Family(
    "draftgate_tokens_per_second",
    Kind.GAUGE,
    "Output tokens per second since the last scrape at least 1 s ago, whoever made it; absent at first. "
    "For a chosen window take rate() of the counter",
    "vllm:generation_tokens_total",
    "sglang:realtime_tokens_total{mode=decode}, without it sglang:gen_throughput",
)
RUNNING = Family(
    "draftgate_requests_running",
    Kind.GAUGE,
    "Requests in the running batch",
    "vllm:num_requests_running",
    "sglang:num_running_reqs",
)
WAITING = Family(
    "draftgate_requests_waiting",
    Kind.GAUGE,
    "Requests in the queue",
    "vllm:num_requests_waiting",
    "sglang:num_queue_reqs",
)
KV_USAGE = Family(
    "draftgate_kv_cache_usage_ratio",
    Kind.GAUGE,
    "Share of the KV cache in use, 0-1, mean over data-parallel ranks",
    "vllm:kv_cache_usage_perc",
    "sglang:token_usage",
)
PREFIX_HITS = Family(
    "draftgate_prefix_cache_hit_tokens_total",
    Kind.COUNTER,
    "Prompt tokens found in the prefix cache",
    "vllm:prefix_cache_hits_total",
    "sglang:cached_tokens_total",
)
PREFIX_QUERIES = Family(
    "draftgate_prefix_cache_queried_tokens_total",
    Kind.COUNTER,
    "Prompt tokens looked up in the prefix cache",
    "vllm:prefix_cache_queries_total",
    "sglang:prompt_tokens_total, once there are hits",
)
PREEMPTIONS = Family(
    "draftgate_preemptions_total",
    Kind.COUNTER,
    "Requests that lost their place in the KV cache and had to start over",
    "vllm:num_preemptions_total",
    "sglang:num_retracted_requests_total",
)
TTFT = Family(
    "draftgate_time_to_first_token_seconds",
    Kind.HISTOGRAM,
    "Time from a request's arrival to its first token",
    "vllm:time_to_first_token_seconds",
    "sglang:time_to_first_token_seconds",
    labels=("le",),
)
TIME_PER_OUTPUT_TOKEN = Family(
    "draftgate_time_per_output_token_seconds",
    Kind.HISTOGRAM,
    "Time per output token after the first (vLLM and newer SGLang: mean of a request, at its end; "
    "older SGLang: each token)",
    "vllm:request_time_per_output_token_seconds",
    "sglang:request_time_per_output_token_seconds, without it sglang:inter_token_latency_seconds",
    labels=("le",),
)

FAMILIES = tuple(value for value in list(globals().values()) if isinstance(value, Family))
