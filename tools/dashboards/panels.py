"""What panels have in common: data source, legend, a description that names the metrics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from grafana_foundation_sdk.builders.bargauge import Panel as Bars
from grafana_foundation_sdk.builders.common import (
    GraphThresholdsStyleConfig,
    ReduceDataOptions,
    VizLegendOptions,
    VizTooltipOptions,
)
from grafana_foundation_sdk.builders.dashboard import (
    Dashboard,
    DashboardLink,
    DatasourceVariable,
    ThresholdsConfig,
)
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.statetimeline import Panel as Timeline
from grafana_foundation_sdk.builders.table import Panel as Table
from grafana_foundation_sdk.builders.timeseries import Panel as Graph
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    BigValueTextMode,
    DataSourceRef,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    TooltipDisplayMode,
    VisibilityMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    VariableOption,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

# As deploy/grafana/provisioning/datasources names it.
SOURCE = "draftgate-prometheus"
_VARIABLE = DataSourceRef(type_val="prometheus", uid="${datasource}")
# One address serves one profile after the other: this tells them apart.
BY_PROFILE = "* on (job, instance) group_left (profile) draftgate_profile_info"
# A window of the plain profile that came after may still hold drafts of the one before.
BY_SPECULATING = f'{BY_PROFILE}{{num_speculative_tokens!=""}}'

_Panel = TypeVar("_Panel", Bars, Graph, Stat, Table, Timeline)


@dataclass(frozen=True)
class Query:
    """Attributes:
    legend: what a series is called; labels in double braces.
    instant: one value, at the end of the range.
    """

    expr: str
    legend: str = "__auto"
    instant: bool = False
    table: bool = False

    def build(self, letter: str) -> Dataquery:
        made = Dataquery().expr(self.expr).legend_format(self.legend).ref_id(letter).datasource(_VARIABLE)
        if self.table:
            made.format(PromQueryFormat.TABLE)
        return made.instant() if self.instant else made.range()


def board(uid: str, title: str, what: str) -> Dashboard:
    """An empty dashboard with the variable of the data source and links to the others."""
    source = (
        DatasourceVariable("datasource")
        .label("Data source")
        .type("prometheus")
        .current(VariableOption(selected=True, text="Prometheus", value=SOURCE))
    )
    others = DashboardLink("draftgate").type(DashboardLinkType.DASHBOARDS).tags(["draftgate"]).keep_time(True)
    return (
        Dashboard(title)
        .uid(uid)
        .description(what)
        .tags(["draftgate"])
        .readonly()
        .refresh("10s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(source)
        .link(others)
    )


def graph(
    title: str,
    what: str,
    *queries: Query,
    unit: str = "short",
    width: int = 12,
    most: float | None = None,
    limit: float | None = None,
) -> Graph:
    """Lines over time; ``most`` is the top of the axis, ``limit`` a line that an alert goes by."""
    panel = _common(Graph(), title, what, queries, width, 8).unit(unit).min(0).fill_opacity(8).line_width(2)
    panel.show_points(VisibilityMode.NEVER).tooltip(
        VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)
    )
    panel.legend(
        VizLegendOptions()
        .display_mode(LegendDisplayMode.TABLE)
        .placement(LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs(["lastNotNull", "max"])
    )
    if most is not None:
        panel.max(most)
    if limit is not None:
        panel.thresholds(_thresholds((None, "red"), (limit, "transparent")))
        panel.thresholds_style(GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.LINE_AND_AREA))
    return panel


def stat(
    title: str,
    what: str,
    *queries: Query,
    unit: str = "short",
    width: int = 6,
    text: BigValueTextMode = BigValueTextMode.VALUE,
    steps: Sequence[tuple[float | None, str]] = ((None, "text"),),
) -> Stat:
    """One value, or with ``text`` NAME the name of the series that is there."""
    panel = _common(Stat(), title, what, queries, width, 4).unit(unit).text_mode(text)
    panel.color_mode(BigValueColorMode.VALUE).graph_mode(BigValueGraphMode.NONE)
    return panel.reduce_options(_last()).thresholds(_thresholds(*steps))


def bars(title: str, what: str, *queries: Query, unit: str, width: int, most: float) -> Bars:
    panel = _common(Bars(), title, what, queries, width, 8).unit(unit).min(0).max(most)
    return panel.orientation(VizOrientation.HORIZONTAL).reduce_options(_last())


def timeline(title: str, what: str, *queries: Query, width: int = 24) -> Timeline:
    panel = _common(Timeline(), title, what, queries, width, 6)
    panel.legend(VizLegendOptions().show_legend(False).display_mode(LegendDisplayMode.LIST))
    return panel.show_value(VisibilityMode.NEVER).thresholds(_thresholds((None, "transparent"), (1, "blue")))


def table(title: str, what: str, *queries: Query, width: int = 24) -> Table:
    return _common(Table(), title, what, queries, width, 8)


def coloured(color: str) -> list[DynamicConfigValue]:
    return [DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": color})]


def _common(
    panel: _Panel, title: str, what: str, queries: Sequence[Query], width: int, height: int
) -> _Panel:
    names = sorted({name for query in queries for name in metrics(query.expr)})
    told = f"{what}\n\nMetrics: {', '.join(f'`{name}`' for name in names)}"
    panel.title(title).description(told).datasource(_VARIABLE).span(width).height(height)
    for letter, query in zip("ABCDEFGH", queries, strict=False):
        panel.with_target(query.build(letter))
    return panel


def metrics(expr: str) -> set[str]:
    """Names of the series that an expression asks for."""
    names = re.findall(r"\b(?:draftgate[_:]|nvidia_smi_|ALERTS\b)[\w:]*", expr)
    return set(names)


def _last() -> ReduceDataOptions:
    return ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields("")


def _thresholds(*steps: tuple[float | None, str]) -> ThresholdsConfig:
    made = [Threshold(value=value, color=color) for value, color in steps]
    return ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(made)
