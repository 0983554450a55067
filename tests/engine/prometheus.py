"""A real Prometheus with the committed configuration, its clock running faster where a test cannot wait."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from tests.conftest import REPOSITORY
from tests.engine.conftest import free_port

FOLDER = REPOSITORY / "deploy" / "prometheus"
# How much faster: windows and waits of minutes take seconds, and 20 minutes are one.
LAPSE = 20
SCRAPE = "2s"
_SECONDS = {"s": 1, "m": 60, "h": 3600}
# Ranges, offsets, `for`, evaluation, and ages that are compared with a number of seconds.
_DURATION = re.compile(r"(?P<before>\[|offset |for: |evaluation_interval: )(?P<number>\d+)(?P<unit>[smh])\b")
_AGE = re.compile(r"(?P<before>_age_seconds [<>] )(?P<number>\d+)\b")


def time_lapse(text: str, factor: float) -> str:
    """A configuration or a file of rules in which every duration is ``factor`` times shorter.

    Thresholds stay: only the clock is another. Scraping is left to the caller, since a scrape takes its time.
    """

    def duration(found: re.Match[str]) -> str:
        seconds = int(found["number"]) * _SECONDS[found["unit"]] / factor
        return f"{found['before']}{round(seconds * 1000)}ms"

    def age(found: re.Match[str]) -> str:
        return f"{found['before']}{int(found['number']) / factor}"

    return _AGE.sub(age, _DURATION.sub(duration, text))


class Prometheus:
    """Attributes:
    url: of its API.
    factor: of `time_lapse`.
    """

    def __init__(self, url: str, factor: float) -> None:
        self.url, self.factor = url, factor
        self.started = time.time()

    def get(self, path: str, **parameters: object) -> Any:
        answer = requests.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=60)  # type: ignore[arg-type]
        told = answer.json()
        assert told["status"] == "success", told
        return told["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def value(self, expression: str) -> float | None:
        found = self.query(expression)
        return float(found[0]["value"][1]) if found else None

    def firing(self) -> set[str]:
        """Names of the alerts that fire now."""
        return {one["metric"]["alertname"] for one in self.query('ALERTS{alertstate="firing"}')}

    def fired(self, since: float) -> set[str]:
        """Names of the alerts that have fired since that time."""
        seconds = max(1, round(time.time() - since))
        found = self.query(
            f'count by (alertname) (count_over_time(ALERTS{{alertstate="firing"}}[{seconds}s]))'
        )
        return {one["metric"]["alertname"] for one in found}

    def await_firing(self, *names: str, seconds: float = 300) -> None:
        deadline = time.monotonic() + seconds
        while not set(names) <= self.firing():
            assert time.monotonic() < deadline, (names, self.get("alerts"), self.query('{job="draftgate"}'))
            time.sleep(0.3)

    def await_quiet(self, seconds: float = 300) -> None:
        deadline = time.monotonic() + seconds
        while firing := self.firing():
            assert time.monotonic() < deadline, firing
            time.sleep(0.3)


@contextmanager
def prometheus(folder: Path, target: str, factor: float = LAPSE) -> Iterator[Prometheus]:
    """One that scrapes the sidecar at ``target`` by the committed configuration."""
    program = shutil.which("prometheus")
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("prometheus is not here")
        pytest.skip("prometheus is not here: install the package prometheus")
    (folder / "rules").mkdir(parents=True)
    for path in FOLDER.glob("rules/*.yml"):
        (folder / "rules" / path.name).write_text(time_lapse(path.read_text(), factor))
    config = yaml.safe_load(time_lapse((FOLDER / "prometheus.yml").read_text(), factor))
    port = free_port()
    if factor > 1:
        # A timeout may not be longer than the interval, and an engine at work needs its time to answer.
        config["global"] |= {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE}
    config["scrape_configs"] = [job for job in config["scrape_configs"] if job["job_name"] == "draftgate"]
    config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    made = Prometheus(f"http://127.0.0.1:{port}", factor)
    try:
        deadline = time.monotonic() + 60
        while True:
            with suppress(requests.ConnectionError):
                if requests.get(f"{made.url}/-/ready", timeout=10).ok:
                    break
            assert process.poll() is None, (folder / "prometheus.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield made
    finally:
        process.terminate()
        process.wait()
