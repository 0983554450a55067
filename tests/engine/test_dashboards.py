"""Every panel's queries against a real Prometheus, beside real engines that serve one after the other.

With DRAFTGATE_TEST_DRAW=FOLDER the dashboards are drawn from what it holds then (tools/dashboards/draw.py).
"""

from __future__ import annotations

import math
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from draftgate.host.processes import wait_until
from draftgate.sidecar.config import SidecarConfig
from tests.engine.conftest import StartEngine
from tests.engine.load import load
from tests.engine.prometheus import Prometheus
from tests.engine.test_alerts import watched, watching
from tests.unit.test_grafana import PANELS
from tools.dashboards.queries import variables

pytestmark = pytest.mark.engine

ENGINES = ("vllm-cpu", "vllm-cpu-eagle", "sglang-cpu", "sglang-cpu-eagle")
# So fast that five minutes pass while each serves, so slow that a scrape fits into what was a minute.
FACTOR = 10
SERVED_SECONDS = float(os.environ.get("DRAFTGATE_TEST_SERVED_SECONDS", "35"))


@pytest.mark.timeout(1800)
def test_every_query_has_data(start_engine: StartEngine, tmp_path: Path) -> None:
    serving: list[SidecarConfig] = []
    with watched(tmp_path, lambda: serving[-1] if serving else None, FACTOR) as prometheus:
        begin = time.time()
        for profile in ENGINES:
            engine = start_engine(profile)
            serving.append(watching(engine))
            with load(engine, 12):
                wait_until(lambda: False, SERVED_SECONDS)
                end = time.time()
            if profile != ENGINES[-1]:
                for process in engine.session():
                    os.kill(process.pid, signal.SIGKILL)
        lacking = [
            f"{name}: {target['expr']}"
            for name, panel in PANELS.items()
            for target in panel["targets"]
            if _has_data(prometheus, target, begin, end) is ("none on a CPU" in panel["description"])
        ]
        assert lacking == []
        if folder := os.environ.get("DRAFTGATE_TEST_DRAW"):
            from tools.dashboards.draw import draw

            draw(prometheus.url, begin, end, Path(folder), FACTOR)


def _has_data(prometheus: Prometheus, target: dict[str, Any], begin: float, end: float) -> bool:
    expr = variables(target["expr"], end - begin, FACTOR)
    if target.get("instant"):
        found = prometheus.get("query", query=expr, time=end)["result"]
        values = [one["value"][1] for one in found]
    else:
        found = prometheus.get("query_range", query=expr, start=begin, end=end, step=2)["result"]
        values = [value for one in found for _, value in one["values"]]
    return any(not math.isnan(float(value)) for value in values)
