"""Prometheus' own tool on the configuration that is shipped."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "deploy" / "prometheus"


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("promtool is not here")
        pytest.skip("promtool is not here: install the package prometheus")
    return found


def test_the_configuration_is_valid(promtool: str) -> None:
    subprocess.run([promtool, "check", "config", FOLDER / "prometheus.yml"], check=True)


@pytest.mark.parametrize("name", sorted(path.name for path in (FOLDER / "tests").glob("*.yml")))
def test_the_rules_say_what_they_should(promtool: str, name: str) -> None:
    subprocess.run([promtool, "test", "rules", FOLDER / "tests" / name], check=True)
