"""Draws the committed dashboards from a Prometheus' data, where no Grafana is; needs matplotlib.

python -m tools.dashboards.draw http://127.0.0.1:9090 --minutes 60 --out docs/images
"""

from __future__ import annotations

import argparse
import json
import math
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tools.dashboards import FOLDER
from tools.dashboards.queries import variables

# Grafana's own: 24 columns, and rows of 30 pixels with their gap.
_COLUMNS, _WIDE, _HIGH = 24, 16.0, 0.38
_COLOURS = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#8ab8ff", "#fade2a")
_BACK, _PANEL, _TEXT = "#111217", "#181b1f", "#ccccdc"
_POINTS = 300


class _Source:
    def __init__(self, url: str, begin: float, end: float, factor: float) -> None:
        self._url, self.begin, self.end, self._factor = url, begin, end, factor

    def series(self, target: dict[str, Any]) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """Labels and points of each series that a query gives."""
        expr = variables(target["expr"], self.end - self.begin, self._factor)
        if target.get("instant"):
            asked = {"query": expr, "time": self.end}
            found = [(one["metric"], [one["value"]]) for one in self._get("query", asked)]
        else:
            step = max(1.0, (self.end - self.begin) / _POINTS)
            asked = {"query": expr, "start": self.begin, "end": self.end, "step": step}
            found = [(one["metric"], one["values"]) for one in self._get("query_range", asked)]
        return [(labels, [(float(at), float(value)) for at, value in points]) for labels, points in found]

    def _get(self, path: str, asked: dict[str, Any]) -> list[dict[str, Any]]:
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(asked)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found


def draw(url: str, begin: float, end: float, out: Path, factor: float = 1) -> list[Path]:
    """One PNG for each dashboard."""
    import matplotlib

    matplotlib.use("Agg")
    out.mkdir(parents=True, exist_ok=True)
    return [
        _board(json.loads(path.read_text()), _Source(url, begin, end, factor), out / f"{path.stem}.png")
        for path in sorted(FOLDER.glob("*.json"))
    ]


def _board(board: dict[str, Any], source: _Source, path: Path) -> Path:
    from matplotlib import pyplot

    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    figure = pyplot.figure(figsize=(_WIDE, rows * _HIGH), facecolor=_BACK)
    for panel in board["panels"]:
        at = panel["gridPos"]
        left, top = at["x"] / _COLUMNS, at["y"] / rows
        if panel["type"] == "row":
            figure.text(0.006, 1 - top - 0.6 / rows, panel["title"], color=_TEXT, size=11, weight="bold")
            continue
        margin = (0.028, 0.9 / rows) if panel["type"] in {"timeseries", "bargauge"} else (0.01, 0.9 / rows)
        under = {"timeseries": 1.9, "state-timeline": 0.9, "bargauge": 1.0}.get(panel["type"], 0.2) / rows
        axes = figure.add_axes(
            (
                left + margin[0],
                1 - top - at["h"] / rows + under,
                at["w"] / _COLUMNS - margin[0] - 0.008,
                at["h"] / rows - margin[1] - under,
            ),
            facecolor=_PANEL,
        )
        axes.set_title(panel["title"], color=_TEXT, size=8.5, loc="left")
        axes.tick_params(colors=_TEXT, labelsize=6.5)
        for spine in axes.spines.values():
            spine.set_color("#2c3235")
        named = [
            (_name(target, labels), labels, points, target)
            for target in panel["targets"]
            for labels, points in source.series(target)
        ]
        _KINDS[panel["type"]](axes, panel, named, source)
    figure.savefig(path, dpi=80, facecolor=_BACK)
    pyplot.close(figure)
    return path


def _name(target: dict[str, Any], labels: dict[str, str]) -> str:
    legend: str = target["legendFormat"]
    for name, value in labels.items():
        legend = legend.replace("{{" + name + "}}", value)
    return "" if legend == "__auto" else legend


def _shown(value: float, unit: str) -> str:
    if math.isnan(value):
        return "NaN"
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s":
        return f"{1000 * value:.3g} ms" if value < 1 else f"{value:.3g} s"
    return f"{value:.4g}"


def _nothing(axes: Any) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, "No data", color=_TEXT, ha="center", va="center", transform=axes.transAxes)


def _graph(axes: Any, panel: dict[str, Any], named: list[Any], source: _Source) -> None:
    if not named:
        _nothing(axes)
        return
    defaults = panel["fieldConfig"]["defaults"]
    for number, (name, _, points, _target) in enumerate(named):
        color = _COLOURS[number % len(_COLOURS)]
        times, values = _with_gaps([(at - source.begin, value) for at, value in points], source)
        axes.plot(
            times, values, color=color, lw=1.3, label=f"{name}: {_shown(points[-1][1], defaults['unit'])}"
        )
        axes.fill_between(times, values, color=color, alpha=0.06)
    axes.set_xlim(0, source.end - source.begin)
    axes.set_ylim(0, defaults.get("max"))
    axes.yaxis.set_major_formatter(lambda value, _: _shown(value, defaults["unit"]))
    axes.grid(color="#2c3235", lw=0.5)
    if defaults.get("custom", {}).get("thresholdsStyle"):
        axes.axhline(defaults["thresholds"]["steps"][1]["value"], color="#f2495c", lw=1)
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(-0.02, -0.1),
        ncols=3,
        fontsize=6,
        labelcolor=_TEXT,
        frameon=False,
        columnspacing=1,
        handlelength=1,
    )


def _with_gaps(points: list[tuple[float, float]], source: _Source) -> tuple[list[float], list[float]]:
    """Lines end where there is no value for a while."""
    step = max(1.0, (source.end - source.begin) / _POINTS)
    times, values, last = [], [], None
    for at, value in points:
        if last is not None and at - last > 3 * step:
            times.append(last + step)
            values.append(math.nan)
        times.append(at)
        values.append(value)
        last = at
    return times, values


def _stat(axes: Any, panel: dict[str, Any], named: list[Any], source: _Source) -> None:
    if not named:
        _nothing(axes)
        return
    axes.set_xticks([])
    axes.set_yticks([])
    options, unit = panel["options"], panel["fieldConfig"]["defaults"]["unit"]
    colors = {
        one["matcher"]["options"]: one["properties"][0]["value"]["fixedColor"]
        for one in panel["fieldConfig"].get("overrides", ())
    }
    for number, (name, _, points, _target) in enumerate(named):
        told = name if options["textMode"] == "name" else _shown(points[-1][1], unit)
        if len(named) > 1:
            told = f"{name}  {_shown(points[-1][1], unit)}"
        axes.text(
            0.5,
            (number + 0.5) / len(named),
            told,
            color=colors.get(name, _step(panel, points[-1][1])),
            ha="center",
            va="center",
            size=15,
            transform=axes.transAxes,
        )


def _step(panel: dict[str, Any], value: float) -> str:
    chosen = "text"
    for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]:
        if step["value"] is None or value >= step["value"]:
            chosen = step["color"]
    return _TEXT if chosen == "text" else chosen


def _bars(axes: Any, panel: dict[str, Any], named: list[Any], source: _Source) -> None:
    if not named:
        _nothing(axes)
        return
    defaults = panel["fieldConfig"]["defaults"]
    named = sorted(named, key=lambda one: one[0], reverse=True)
    values = [points[-1][1] for _, _, points, _ in named]
    axes.barh([name for name, *_ in named], values, height=0.6, color="#2f6b3a")
    for place, value in enumerate(values):
        axes.text(value, place, f" {_shown(value, defaults['unit'])}", color=_TEXT, va="center", size=8)
    axes.set_xlim(0, defaults["max"])
    axes.tick_params(axis="y", direction="in", pad=-50, length=0)


def _timeline(axes: Any, panel: dict[str, Any], named: list[Any], source: _Source) -> None:
    width = max(1.0, (source.end - source.begin) / _POINTS)
    for place, (_, _, points, _target) in enumerate(named):
        on = [at - source.begin for at, value in points if value >= 1]
        axes.broken_barh([(at, 1.2 * width) for at in on], (place - 0.4, 0.8), color=_COLOURS[2])
    axes.set_yticks(range(len(named)), [name for name, *_ in named])
    axes.set_ylim(len(named) - 0.4, -0.6)
    axes.tick_params(axis="y", direction="in", pad=-55, length=0)
    axes.set_xlim(0, source.end - source.begin)


def _table(axes: Any, panel: dict[str, Any], named: list[Any], source: _Source) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    renamed = panel["transformations"][1]["options"]["renameByName"]
    columns = [name for field, name in renamed.items() if field.startswith("Value")]
    rows: dict[str, dict[str, str]] = {}
    for _, labels, points, target in named:
        column = renamed[f"Value #{target['refId']}"]
        rows.setdefault(labels["profile"], {})[column] = _shown(points[-1][1], "short")
    cells = [[profile, *(rows[profile].get(column, "") for column in columns)] for profile in sorted(rows)]
    made = axes.table(
        cells, colLabels=["Profile", *columns], loc="upper left", cellLoc="left", edges="horizontal"
    )
    made.auto_set_font_size(False)
    made.set_fontsize(9)
    made.scale(1, 1.4)
    for cell in made.get_celld().values():
        cell.get_text().set_color(_TEXT)
        cell.set_edgecolor("#2c3235")


_KINDS = {
    "timeseries": _graph,
    "stat": _stat,
    "bargauge": _bars,
    "state-timeline": _timeline,
    "table": _table,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.dashboards.draw", description=__doc__)
    parser.add_argument("prometheus", help="its address")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    end = time.time()
    for path in draw(options.prometheus, end - 60 * options.minutes, end, options.out):
        print(path)


if __name__ == "__main__":
    main()
