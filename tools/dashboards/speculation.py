"""Does the drafter pay: what is accepted, against what should be, at which cost, beside other profiles."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row
from grafana_foundation_sdk.builders.table import Panel as Table
from grafana_foundation_sdk.models.dashboard import DataTransformerConfig

from tools.dashboards.panels import BY_PROFILE, BY_SPECULATING, Query, bars, board, graph, stat, table

_LENGTH = "draftgate:spec_acceptance_length:rate5m"
_SHARE = f"({_LENGTH} - 1) / on (job, instance) group_left () (draftgate_spec_expected_acceptance_length - 1)"
_AT_REST = "No data while nothing is drafted."


def speculation() -> Dashboard:
    return (
        board(
            "draftgate-speculation",
            "draftgate: speculation",
            "Acceptance, expected against observed, step cost, and profiles side by side.",
        )
        .with_row(Row("Now"))
        .with_panel(
            stat(
                "Tokens per verify step",
                f"Acceptance length, bonus token included, over five minutes. {_AT_REST}",
                Query(_LENGTH, instant=True),
            )
        )
        .with_panel(
            stat(
                "Expected",
                "What the profile says its drafter reaches, else the lowest length published for this "
                "drafter, target and K. No data where nothing is known.",
                Query("draftgate_spec_expected_acceptance_length", instant=True),
            )
        )
        .with_panel(
            stat(
                "Accepted of expected",
                "Accepted draft tokens per step, of those expected; below a half DraftgateAcceptanceLow "
                f"fires. {_AT_REST}",
                Query(_SHARE, instant=True),
                unit="percentunit",
                steps=((None, "red"), (0.5, "orange"), (0.8, "green")),
            )
        )
        .with_panel(
            stat(
                "Acceptance rate",
                f"Accepted of proposed draft tokens, over five minutes. {_AT_REST}",
                Query("draftgate:spec_acceptance_ratio:rate5m", instant=True),
                unit="percentunit",
            )
        )
        .with_row(Row("Acceptance"))
        .with_panel(
            graph(
                "Expected and observed length",
                f"Tokens per verify step, bonus token included: 1 is none accepted, K+1 is all. {_AT_REST}",
                Query(f"draftgate:spec_acceptance_length:rate1m {BY_SPECULATING}", "{{profile}}, 1 min"),
                Query(_LENGTH, "5 min"),
                Query("draftgate_spec_expected_acceptance_length", "expected"),
            )
        )
        .with_panel(
            graph(
                "Acceptance rate",
                "Accepted of proposed draft tokens; falls as K rises, so compare at equal K. A tree has "
                f"none. {_AT_REST}",
                Query("draftgate:spec_acceptance_ratio:rate1m", "1 min"),
                Query("draftgate:spec_acceptance_ratio:rate5m", "5 min"),
                Query("draftgate:spec_acceptance_ratio:rate1h", "1 h"),
                unit="percentunit",
                most=1,
            )
        )
        .with_panel(
            bars(
                "By position, over the chosen time",
                "Share of the verify steps in which the draft token at this position was accepted, and "
                "so all before it; docs/runbooks/acceptance-low.md reads the curve. SGLang in a "
                "container: no data, its requests' file is not shared.",
                Query(
                    "sum by (position) "
                    "(increase(draftgate_spec_accepted_tokens_per_position_total[$__range])) "
                    "/ on () group_left () sum(increase(draftgate_spec_drafts_total[$__range]) > 0)",
                    "position {{position}}",
                    instant=True,
                ),
                unit="percentunit",
                width=8,
                most=1,
            )
        )
        .with_panel(
            graph(
                "By position over time",
                f"The same, as it went. {_AT_REST}",
                Query(
                    "rate(draftgate_spec_accepted_tokens_per_position_total[$__rate_interval])"
                    " / on (job, instance) group_left ()"
                    " (rate(draftgate_spec_drafts_total[$__rate_interval]) > 0)",
                    "position {{position}}",
                ),
                unit="percentunit",
                width=8,
                most=1,
            )
        )
        .with_panel(
            graph(
                "Accepted of expected",
                f"Below the line DraftgateAcceptanceLow fires. {_AT_REST}",
                Query(_SHARE, "of expected"),
                unit="percentunit",
                width=8,
                limit=0.5,
            )
        )
        .with_row(Row("Cost"))
        .with_panel(
            graph(
                "Step time",
                "Of one engine step of one request: time per output token by tokens per step. With a "
                "drafter a step costs more; by how much is the step-cost ratio. No data without "
                "requests that end.",
                Query(f"draftgate:step_seconds:rate1m {BY_PROFILE}", "{{profile}}"),
                unit="s",
                width=8,
            )
        )
        .with_panel(
            stat(
                "Step-cost ratio",
                "Step time with a drafter over that of the same engine's profiles without one, both "
                "within the chosen time and, for it to mean anything, under the same load. The drafter "
                "pays where tokens per step are above it. No data where only one of the two ran.",
                Query(
                    _over_time("draftgate:step_seconds:rate1m", "profile, engine", _SPECULATING)
                    + " / on (engine) group_left () "
                    + _over_time("draftgate:step_seconds:rate1m", "engine", _PLAIN),
                    "{{profile}}",
                    instant=True,
                ),
                width=8,
            ).height(8)
        )
        .with_panel(
            graph(
                "Draft tokens",
                "Per second; what is proposed and not accepted was computed in vain. SGLang in a container "
                "tells no more than its steps.",
                Query("rate(draftgate_spec_proposed_tokens_total[$__rate_interval])", "proposed"),
                Query("rate(draftgate_spec_accepted_tokens_total[$__rate_interval])", "accepted"),
                Query("rate(draftgate_spec_drafts_total[$__rate_interval])", "verify steps"),
                width=8,
            )
        )
        .with_row(Row("Profiles"))
        .with_panel(_side_by_side())
        .with_panel(
            graph(
                "Age of SGLang's window",
                "SGLang's gauges of acceptance are a mean of its last log interval and hold still at "
                "rest; this is how old they are at least. No data from vLLM, which counts.",
                Query("draftgate_spec_window_age_seconds", "age"),
                unit="s",
                width=24,
            )
        )
    )


_SPECULATING, _PLAIN = '{num_speculative_tokens!=""}', '{num_speculative_tokens=""}'


def _over_time(series: str, labels: str, which: str = "") -> str:
    """Mean of a series over the chosen time, by labels of the profiles that ran in it."""
    joined = f"{series} * on (job, instance) group_left ({labels}) draftgate_profile_info{which}"
    return f"avg by ({labels}) (avg_over_time(({joined})[$__range:$__rate_interval]))"


_COLUMNS = {
    "Tokens/s": ("(draftgate:tokens_per_second:rate1m > 0)", ""),
    "Tokens per step": ("draftgate:spec_acceptance_length:rate1m", _SPECULATING),
    "Acceptance rate": ("draftgate:spec_acceptance_ratio:rate1m", _SPECULATING),
    "Step time (s)": ("draftgate:step_seconds:rate1m", ""),
    "Requests": ("(draftgate_requests_running > 0)", ""),
}


def _side_by_side() -> Table:
    queries = [
        Query(_over_time(series, "profile", which), instant=True, table=True)
        for series, which in _COLUMNS.values()
    ]
    names = {f"Value #{letter}": name for letter, name in zip("ABCDEFGH", _COLUMNS, strict=False)}
    panel = table(
        "Profiles side by side",
        "Means over the chosen time, idle minutes left out, of every profile that ran in it. A look, no "
        "verdict: loads differ; `draftgate bench` measures under the same one.",
        *queries,
    )
    merge = DataTransformerConfig(id_val="merge", options={})
    organize = DataTransformerConfig(
        id_val="organize",
        options={
            "excludeByName": {"Time": True},
            "indexByName": {},
            "renameByName": {"profile": "Profile", **names},
        },
    )
    return panel.with_transformation(merge).with_transformation(organize)
