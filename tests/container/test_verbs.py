"""`draftgate up|status|logs|down --runtime docker`, and own profiles, in real Docker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from draftgate.errors import ExitCode
from draftgate.host.lock import current_holder
from tests.conftest import REPOSITORY
from tests.container.conftest import Project

Draftgate = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def draftgate(project: Project, tmp_path: Path) -> Draftgate:
    """The command, on the test's own project; no engine is installed for it."""
    folders = {f"DRAFTGATE_{name}_DIR": str(tmp_path / name) for name in ("STATE", "DATA")}

    def run(*words: str, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "draftgate", *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **project.environment, **folders, **more},
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


def left(project: Project) -> str:
    """Containers and networks of the project."""
    label = f"label=com.docker.compose.project={project.environment['COMPOSE_PROJECT_NAME']}"
    asked = (["docker", "ps", "--all"], ["docker", "network", "ls"])
    return "".join(
        subprocess.run(
            [*words, "--quiet", "--filter", label], capture_output=True, text=True, check=True
        ).stdout
        for words in asked
    )


def test_from_up_to_another_and_down(project: Project, draftgate: Draftgate) -> None:
    first, second = "sglang-cpu-eagle", "sglang-cpu"
    assert draftgate("up", first, "--runtime", "docker", "--wait").stdout.endswith(f"{first}: ready\n")
    # From here on the containers are found without being told.
    told = json.loads(draftgate("status", "--ready", "--json").stdout)
    states = {one["service"]: one["state"] for one in told["containers"]}
    assert states.pop(first) == "running, healthy"
    assert states == dict.fromkeys(("box", "sidecar", "prometheus", "grafana"), "running")
    assert project.chat("def f(x):\n").status_code == 200
    assert "ready" in draftgate("logs").stdout
    assert len(draftgate("logs", "--lines", "2").stdout.splitlines()) == 2
    assert "sidecar of whichever profile runs" in draftgate("logs", "--sidecar").stdout
    refused = draftgate("up", second, "--runtime", "docker", code=ExitCode.ALREADY_RUNNING).stderr
    assert f"profile {first!r} already runs here: running, healthy" in refused
    assert "  next:  draftgate down" in refused
    # What `up` wrote last is not what runs: `down` goes by what runs.
    draftgate("down")
    assert left(project) == ""
    draftgate("up", second, "--wait")
    assert project.chat("def f(x):\n").status_code == 200
    assert f'profile="{second}"' in project.metrics()
    draftgate("down", "--now")
    assert left(project) == ""
    assert current_holder(Path(project.environment["DRAFTGATE_LOCK"]) / "draftgate") is None
    assert draftgate("down", "--runtime", "docker").stdout == "nothing runs here\n"
    draftgate("status", "--runtime", "docker", code=ExitCode.NOT_RUNNING)
    draftgate("logs", "--runtime", "docker", code=ExitCode.NOT_RUNNING)


def test_an_own_profile_with_its_layer_its_drafter_its_key_and_a_variable(
    project: Project, draftgate: Draftgate, tmp_path: Path
) -> None:
    (tmp_path / "layers").mkdir()
    shutil.copytree(REPOSITORY / "models" / "tiny-drafter", tmp_path / "layers" / "my drafter")
    (tmp_path / "layers" / "own.toml").write_text('[drafter]\nmodel = "./my drafter"\n')
    (tmp_path / "key").write_text("s3cr$t\n")
    mine = 'description = "x"\nextends = ["sglang-cpu-eagle", "layers/own"]\n[server]\napi_key_file = "key"\n'
    (tmp_path / "mine.toml").write_text(mine)
    said = {"DRAFTGATE_PROFILE_PATH": str(tmp_path), "DRAFTGATE_SET__target__served_name": "its $name"}
    draftgate("up", "./mine.toml", "--runtime", "docker", "--wait", **said)
    body = {"model": "its $name", "prompt": "def f(x):\n", "max_tokens": 20, "temperature": 0}
    address = f"{project.url()}/v1/completions"
    assert requests.post(address, json=body, timeout=60).status_code == 401
    answer = requests.post(address, json=body, timeout=60, headers={"Authorization": "Bearer s3cr$t"})
    assert answer.status_code == 200, answer.text
    project.await_(lambda: 'drafter="my drafter"' in project.metrics(), 60)
    assert 'profile="mine"' in project.metrics()
    assert "s3cr$t" not in draftgate("logs").stdout
    draftgate("down", "--now")


def test_up_ends_as_the_launch_in_its_container_does(draftgate: Draftgate, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    words = ("--runtime", "docker", "--wait", "--set", f"drafter.model={tmp_path}/empty")
    draftgate("up", "sglang-cpu-eagle", *words, code=ExitCode.CHECKPOINT_UNREADABLE)
    assert "/own/drafter/empty" in draftgate("logs").stdout
    draftgate("status", code=ExitCode.ENGINE_FAILED)
    draftgate("down")


@pytest.mark.parametrize(("program", "state"), [("sleep 1000", "paused"), ("false", "restarting")])
def test_what_only_seems_to_have_ended_is_in_the_way(
    project: Project, draftgate: Draftgate, program: str, state: str
) -> None:
    named = f"{project.environment['COMPOSE_PROJECT_NAME']}-{state}"
    labels = {"project": project.environment["COMPOSE_PROJECT_NAME"], "service": "mine"}
    words = [
        word for key, value in labels.items() for word in ("--label", f"com.docker.compose.{key}={value}")
    ]
    run = ["docker", "run", "--detach", "--name", named, "--restart", "always", "--entrypoint", "sh", *words]
    subprocess.run([*run, "draftgate/draftgate", "-c", program], stdout=subprocess.DEVNULL, check=True)
    try:
        if state == "paused":
            subprocess.run(["docker", "pause", named], stdout=subprocess.DEVNULL, check=True)
            assert "paused" in draftgate("status", "--runtime", "docker").stdout
        refused = draftgate("up", "sglang-cpu", "--runtime", "docker", code=ExitCode.ALREADY_RUNNING)
        assert "profile 'mine' already runs here" in refused.stderr
    finally:
        subprocess.run(["docker", "rm", "--force", named], stdout=subprocess.DEVNULL, check=True)
