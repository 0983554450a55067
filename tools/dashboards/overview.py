"""The first look: does it serve, how fast, for how many, and what fills the memory."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.timeseries import Panel as Graph
from grafana_foundation_sdk.models.common import BigValueTextMode

from draftgate.metrics.state import EngineState
from tools.dashboards.panels import BY_PROFILE, Query, board, coloured, graph, stat, timeline

_COLOURS = {
    EngineState.UNREACHABLE: "red",
    EngineState.UNREADABLE: "orange",
    EngineState.BLIND: "orange",
    EngineState.IDLE: "blue",
    EngineState.BUSY: "green",
    EngineState.STALLED: "red",
}
_WITHOUT_GPU = "No data without the Compose profile gpu-metrics, so none on a CPU."


def overview() -> Dashboard:
    return (
        board("draftgate-overview", "draftgate: overview", "State, throughput, latency, queue and KV cache.")
        .with_row(Row("State"))
        .with_panel(_state())
        .with_panel(
            stat(
                "Serving",
                "The profile whose engine answers now.",
                Query("draftgate_profile_info", "{{profile}} ({{engine}} {{engine_version}})", instant=True),
                text=BigValueTextMode.NAME,
                width=10,
            )
        )
        .with_panel(
            stat(
                "Output tokens per second",
                "Mean over the last minute.",
                Query("draftgate:tokens_per_second:rate1m", instant=True),
                width=4,
            )
        )
        .with_panel(
            stat(
                "Alerts",
                "How many fire; Prometheus' page of alerts names them, docs/runbooks/ says what to do.",
                Query(
                    'count(ALERTS{alertstate="firing",alertname=~"Draftgate.+"}) or vector(0)', instant=True
                ),
                width=4,
                steps=((None, "green"), (1, "red")),
            )
        )
        .with_panel(
            timeline(
                "States over time",
                "What the engine did when. Unreachable while it starts, too.",
                Query("draftgate_engine_state", "{{state}}"),
            )
        )
        .with_row(Row("Throughput and latency"))
        .with_panel(
            graph(
                "Output tokens per second",
                "All requests together, by the profile that served them.",
                Query(f"draftgate:tokens_per_second:rate1m {BY_PROFILE}", "{{profile}}, 1 min"),
                Query(f"draftgate:tokens_per_second:rate5m {BY_PROFILE}", "{{profile}}, 5 min"),
            )
        )
        .with_panel(
            graph(
                "Prompt tokens per second",
                "Prefill, cached tokens included (SGLang counts them when a request ends).",
                Query(f"rate(draftgate_prompt_tokens_total[$__rate_interval]) {BY_PROFILE}", "{{profile}}"),
            )
        )
        .with_panel(
            _quantiles(
                "Time to the first token",
                "From a request's arrival; grows with the queue. No data without requests.",
                "draftgate_time_to_first_token_seconds",
            )
        )
        .with_panel(
            _quantiles(
                "Time per output token",
                "After the first one, as a request sees it on average. No data without requests that end.",
                "draftgate_time_per_output_token_seconds",
            )
        )
        .with_row(Row("Queue and KV cache"))
        .with_panel(
            graph(
                "Requests",
                "Decoded together, and waiting for a place.",
                Query("draftgate_requests_running", "running"),
                Query("draftgate_requests_waiting", "waiting"),
            )
        )
        .with_panel(
            graph(
                "KV cache in use",
                "Full is thrift, until requests lose their place (see the next row).",
                Query("draftgate_kv_cache_usage_ratio", "in use"),
                unit="percentunit",
                most=1,
            )
        )
        .with_panel(
            graph(
                "Requests that lost their place",
                "Preempted (vLLM) or retracted (SGLang), and computed again from the start.",
                Query("rate(draftgate_preemptions_total[$__rate_interval])", "per second"),
                width=6,
            )
        )
        .with_panel(
            graph(
                "Prompt tokens found in the prefix cache",
                "Of those looked up. No data while no prompt is looked up.",
                Query(
                    "rate(draftgate_prefix_cache_hit_tokens_total[$__rate_interval]) / "
                    "(rate(draftgate_prefix_cache_queried_tokens_total[$__rate_interval]) > 0)",
                    "found",
                ),
                unit="percentunit",
                width=6,
                most=1,
            )
        )
        .with_panel(
            graph(
                "Scrapes",
                "What the sidecar needs to have and understand the engine's metrics.",
                Query("draftgate_scrape_duration_seconds", "duration"),
                unit="s",
                width=6,
            )
        )
        .with_panel(
            graph(
                "Scrapes that failed",
                "Why the engine's metrics could not be had. No data while they can.",
                Query("draftgate_scrape_error", "{{reason}}"),
                width=6,
            )
        )
        .with_row(Row("GPUs"))
        .with_panel(_gpu("Load", "nvidia_smi_utilization_gpu_ratio", "percentunit"))
        .with_panel(_gpu("Memory in use", "nvidia_smi_memory_used_bytes", "bytes"))
        .with_panel(_gpu("Power", "nvidia_smi_power_draw_watts", "watt"))
        .with_panel(_gpu("Temperature", "nvidia_smi_temperature_gpu", "celsius"))
    )


def _state() -> Stat:
    panel = stat(
        "State",
        "Of the engine, as the sidecar sees it.",
        Query("draftgate_engine_state == 1", "{{state}}", instant=True),
        text=BigValueTextMode.NAME,
    )
    for state, color in _COLOURS.items():
        panel.override_by_name(state, coloured(color))
    return panel


def _quantiles(title: str, what: str, histogram: str) -> Graph:
    per_bound = f"sum by (le) (rate({histogram}_bucket[$__rate_interval]))"
    queries = [Query(f"histogram_quantile({q / 100}, {per_bound})", f"p{q}") for q in (50, 95, 99)]
    return graph(title, what, *queries, unit="s")


def _gpu(title: str, metric: str, unit: str) -> Graph:
    return graph(title, f"By GPU. {_WITHOUT_GPU}", Query(metric, "{{uuid}}"), unit=unit, width=6)
