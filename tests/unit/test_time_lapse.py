"""The faster clock of the tests on engines: every duration of what is committed, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.engine.prometheus import time_lapse
from tests.unit.test_prometheus import RULES
from tools.dashboards.queries import variables


def test_all_kinds_of_durations() -> None:
    text = (
        "evaluation_interval: 10s\nfor: 15m\nexpr: |\n"
        "  rate(a:rate5m[5m]) > max_over_time(b[1h] offset 10m)\n"
        "  and draftgate_spec_window_age_seconds < 300 and c > 20\n# for five minutes\n"
    )
    assert time_lapse(text, 20) == (
        "evaluation_interval: 500ms\nfor: 45000ms\nexpr: |\n"
        "  rate(a:rate5m[15000ms]) > max_over_time(b[180000ms] offset 30000ms)\n"
        "  and draftgate_spec_window_age_seconds < 15.0 and c > 20\n# for five minutes\n"
    )


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_no_duration_of_the_rules_is_left(path: Path) -> None:
    faster = time_lapse(path.read_text(), 10)
    assert re.findall(r"\[\d+[smh]\]|offset \d+[smh]\b|for: \d+[smh]\b", faster) == []


def test_grafanas_variables() -> None:
    expr = "rate(a[$__rate_interval]) / increase(b[$__range:$__rate_interval])"
    assert variables(expr, 3600) == "rate(a[40000ms]) / increase(b[3600s:40000ms])"
    assert variables(expr, 3600, 20) == "rate(a[8000ms]) / increase(b[3600s:8000ms])"
