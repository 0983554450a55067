"""Dashboards and provisioning: committed as built, as Grafana takes them, and asking for what there is."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from pydantic import BaseModel, ConfigDict

from draftgate.sidecar.families import FAMILIES
from tests.conftest import REPOSITORY
from tests.unit.test_prometheus import exported, recorded
from tools.dashboards import FOLDER, files
from tools.dashboards.panels import SOURCE, metrics

SCHEMAS = REPOSITORY / "tests" / "fixtures" / "grafana"
PROVISIONING = REPOSITORY / "deploy" / "grafana" / "provisioning"
BOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))
}
# Of nvidia_gpu_exporter, docs/METRICS.md at 13be061.
GPU = {
    "nvidia_smi_utilization_gpu_ratio",
    "nvidia_smi_memory_used_bytes",
    "nvidia_smi_power_draw_watts",
    "nvidia_smi_temperature_gpu",
}
LABELS = {label for family in FAMILIES for label in family.labels} | {
    "job",
    "instance",
    "uuid",
    "alertname",
    "alertstate",
}


def schema(name: str, definition: str | None = None) -> Draft7Validator:
    # What picks the fields of an override is said to be an object there; Grafana itself writes their name.
    anything = {"type": "object", "additionalProperties": {}}
    document: dict[str, Any] = json.loads(
        (SCHEMAS / f"{name}.jsonschema.json").read_text(),
        object_hook=lambda one: {**one, "options": {}} if one.get("options") == anything else one,
    )
    if definition is not None:
        document["$ref"] = f"#/definitions/{definition}"
    return Draft7Validator(document)


PANELS = {
    f"{name}: {panel['title']}": panel
    for name, board in BOARDS.items()
    for panel in board["panels"]
    if panel["type"] != "row"
}
QUERIES = {target["expr"] for panel in PANELS.values() for target in panel["targets"]}


def strangers(expr: str) -> set[str]:
    """Names in an expression that nothing exports."""
    return metrics(expr) - exported() - recorded() - GPU - {"ALERTS"}


def foreign_labels(expr: str) -> set[str]:
    """Labels that no series has."""
    grouped = re.findall(r"(?:by|on|group_left) \(([^)]*)\)", expr)
    matched = re.findall(r"(\w+)(?:=~|!~|!=|=)\"", expr)
    return {name.strip() for names in grouped for name in names.split(",") if name.strip()} | set(matched)


def test_the_committed_files_are_what_is_built() -> None:
    committed = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    assert committed == files(), "`python -m tools.dashboards` writes them anew"


@pytest.mark.parametrize("name", BOARDS)
def test_grafana_takes_the_dashboard(name: str) -> None:
    errors = [
        f"{list(error.path)}: {error.message}" for error in schema("dashboard").iter_errors(BOARDS[name])
    ]
    assert errors == []


@pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS)
def test_grafana_takes_the_panel(panel: dict[str, Any]) -> None:
    kind = panel["type"].replace("-", "")
    told = [("options", schema(kind, "Options"), panel["options"])]
    if custom := panel["fieldConfig"]["defaults"].get("custom"):
        told.append(("custom", schema(kind, "FieldConfig"), custom))
    told += [("query", schema("prometheus"), target) for target in panel["targets"]]
    assert [f"{what}: {error.message}" for what, by, value in told for error in by.iter_errors(value)] == []


def test_what_grafana_would_not_take_is_found() -> None:
    broken = {**BOARDS["overview"], "refreshh": "10s"}
    assert list(schema("dashboard").iter_errors(broken))


@pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS)
def test_a_panel_asks_for_what_there_is(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        assert strangers(target["expr"]) == set()
        assert foreign_labels(target["expr"]) <= LABELS
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= LABELS
        # Every name is seen: none is hidden by a spelling that the check does not know as one.
        assert metrics(target["expr"])
        assert all(f"`{name}`" in panel["description"] for name in metrics(target["expr"]))
        assert target["datasource"] == panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.parametrize("expr", sorted(QUERIES))
def test_a_misspelt_query_is_found(expr: str) -> None:
    name = max(metrics(expr) - {"ALERTS"}, default="", key=len)
    if name:
        assert strangers(expr.replace(name, f"{name[:-1]}x")) != set()


def test_uids_and_numbers_are_fixed_and_single() -> None:
    assert {name: (board["uid"], board.get("id")) for name, board in BOARDS.items()} == {
        "overview": ("draftgate-overview", None),
        "speculation": ("draftgate-speculation", None),
    }
    for board in BOARDS.values():
        numbers = [panel["id"] for panel in board["panels"]]
        assert numbers == list(range(1, len(numbers) + 1))


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Options(_Strict):
    path: str


class _Provider(_Strict):
    """As Grafana documents it: administration/provisioning, dashboards."""

    name: str
    type: str
    folder: str
    folderUid: str
    disableDeletion: bool
    allowUiUpdates: bool
    updateIntervalSeconds: int
    options: _Options


class _Providers(_Strict):
    apiVersion: int
    providers: list[_Provider]


class _Source(_Strict):
    """As Grafana documents it: administration/provisioning, data sources."""

    name: str
    uid: str
    type: str
    access: str
    url: str
    isDefault: bool
    editable: bool
    jsonData: dict[str, str]


class _Sources(_Strict):
    apiVersion: int
    datasources: list[_Source]


def test_the_provisioning_fits_together() -> None:
    sources = _Sources.model_validate(
        yaml.safe_load((PROVISIONING / "datasources" / "prometheus.yml").read_text())
    )
    providers = _Providers.model_validate(
        yaml.safe_load((PROVISIONING / "dashboards" / "draftgate.yml").read_text())
    )
    assert (sources.apiVersion, providers.apiVersion) == (1, 1)
    assert [source.uid for source in sources.datasources] == [SOURCE]
    for board in BOARDS.values():
        assert board["templating"]["list"][0]["current"]["value"] == SOURCE
    compose = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())
    mounted = dict(volume.split(":")[:2] for volume in compose["services"]["grafana"]["volumes"])
    assert mounted["./deploy/grafana/dashboards"] == providers.providers[0].options.path
    assert mounted["./deploy/grafana/provisioning"] == "/etc/grafana/provisioning"
