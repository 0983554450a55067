"""Prometheus' own tool on the configuration that is shipped."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from draftgate.metrics.state import EngineState
from draftgate.sidecar.families import FAMILIES, Kind
from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "deploy" / "prometheus"
RULES = sorted((FOLDER / "rules").glob("*.yml"))


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("promtool is not here")
        pytest.skip("promtool is not here: install the package prometheus")
    return found


def rules(path: Path) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in rules(FOLDER / "rules" / "alerts.yml")}


def test_the_configuration_is_valid(promtool: str) -> None:
    subprocess.run([promtool, "check", "config", FOLDER / "prometheus.yml"], check=True)


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_the_rules_are_valid(promtool: str, path: Path) -> None:
    subprocess.run([promtool, "check", "rules", path], check=True)


@pytest.mark.parametrize("name", sorted(path.name for path in (FOLDER / "tests").glob("*.yml")))
def test_the_rules_say_what_they_should(promtool: str, name: str) -> None:
    subprocess.run([promtool, "test", "rules", FOLDER / "tests" / name], check=True)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_waits_is_explained_and_has_its_page(name: str) -> None:
    alert = ALERTS[name]
    assert alert["for"]
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
    page = REPOSITORY / alert["annotations"]["runbook_url"]
    assert page.read_text().startswith(f"# {name}\n\n**Means**: ")
    assert "\n**See**" in page.read_text()
    assert "\n**Do**" in page.read_text()


def test_every_page_is_of_an_alert() -> None:
    told = {REPOSITORY / alert["annotations"]["runbook_url"] for alert in ALERTS.values()}
    assert told == set((REPOSITORY / "docs" / "runbooks").glob("*.md"))


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_tested_to_fire_and_not_to(name: str) -> None:
    tests = yaml.safe_load((FOLDER / "tests" / "alerts.yml").read_text())["tests"]
    fires = {
        bool(one["exp_alerts"])
        for test in tests
        for one in test["alert_rule_test"]
        if one["alertname"] == name
    }
    assert fires == {True, False}


def exported() -> set[str]:
    """Every series that the sidecar can give."""
    parts = {Kind.HISTOGRAM: ("_bucket", "_sum", "_count")}
    return {family.name + part for family in FAMILIES for part in parts.get(family.kind, ("",))}


def recorded() -> set[str]:
    return {rule["record"] for path in RULES for rule in rules(path) if "record" in rule}


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_rules_go_by_series_that_there_are(path: Path) -> None:
    for rule in rules(path):
        assert set(re.findall(r"\bdraftgate[_:][\w:]*", rule["expr"])) <= exported() | recorded()
        for states in re.findall(r'state=~?"([\w|]+)"', rule["expr"]):
            assert set(states.split("|")) <= set(EngineState)
