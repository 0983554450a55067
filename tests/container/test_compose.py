"""`docker compose --profile …`: engines, sidecar and Prometheus for real, and what happens when they fail."""

from __future__ import annotations

import concurrent.futures
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from draftgate.errors import ExitCode
from tests.conftest import REPOSITORY
from tests.container.conftest import OFFLINE, Project

PROFILES = sorted(path.stem for path in (REPOSITORY / "profiles").glob("*.toml"))


def speak(project: Project, times: int = 3) -> None:
    """Chat until there is something to measure."""
    for number in range(times):
        answer = project.chat(f"def function_{number}(path):\n")
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["message"]["content"]


def reached(ask: Callable[[], str]) -> str:
    """The answer, or nothing where nobody answers."""
    try:
        return ask()
    except requests.RequestException:
        return ""


def measured(project: Project, profile: str) -> None:
    """Prometheus holds acceptance and throughput of the engine that answers now."""
    wanted = ("draftgate:spec_acceptance_ratio:rate1m", "draftgate:tokens_per_second:rate1m")

    def all_there() -> bool:
        speak(project)
        return all((project.query(expression) or 0) > 0 for expression in wanted)

    project.await_(all_there, 120)
    acceptance = project.query(wanted[0])
    assert acceptance is not None
    assert 0 < acceptance < 1
    assert f'profile="{profile}"' in project.metrics()
    # What it should reach is known, and every rule, alerts among them, can be evaluated.
    expected = project.query("draftgate_spec_expected_acceptance_length")
    assert expected is not None
    assert 1 < expected <= 4
    assert project.rules_health() == {"ok"}


def positions(text: str) -> list[float]:
    """Accepted tokens by their position in the draft, as the sidecar says."""
    return [
        float(line.split()[-1])
        for line in text.splitlines()
        if line.startswith("draftgate_spec_accepted_tokens_per_position_total")
    ]


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_is_valid_to_compose(project: Project, profile: str) -> None:
    done = project.compose("--profile", profile, "config", "--services")
    assert profile in done.stdout.split()


def test_both_engines_one_after_the_other_behind_one_address(project: Project) -> None:
    first, second = "vllm-cpu-eagle", "sglang-cpu-eagle"
    project.up(first)
    assert project.healthy(first)
    measured(project, first)
    project.up(second, wait=False)
    waiting = f"the GPU lock is held by profile {first!r}"
    project.await_(lambda: waiting in project.log(second))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        chats = [pool.submit(project.chat, f"x = {number}\n", 5) for number in range(200)]
        scrapes = [pool.submit(project.metrics) for _ in range(200)]
        assert [chat.result().status_code for chat in chats] == [200] * 200
        texts = [scrape.result() for scrape in scrapes]
    assert all("draftgate_up 1.0" in text and f'profile="{first}"' in text for text in texts)
    assert not project.healthy(second)
    project.compose("stop", first)
    assert project.state(first)["ExitCode"] == ExitCode.TERMINATED
    project.await_(lambda: project.healthy(second))
    measured(project, second)
    # By the file that SGLang writes of each request: it has no counters of positions.
    depth = positions(project.metrics())
    assert len(depth) == 3
    assert depth[0] >= depth[1] >= depth[2] > 0


def test_sigkill_of_sidecar_engine_and_box(project: Project) -> None:
    project.up("sglang-cpu-eagle")
    # The sidecar comes back by itself, and the engine does not notice.
    project.kill("sidecar")
    speak(project, 1)
    project.await_(lambda: "draftgate_up 1.0" in reached(project.metrics), 60)
    # The engine's container takes all of the engine with it; the lock is free, and the next one serves.
    project.kill("sglang-cpu-eagle")
    project.await_(lambda: project.state("sglang-cpu-eagle")["Running"] is False, 30)
    project.await_(lambda: "draftgate_up 0.0" in reached(project.metrics), 60)
    project.up("sglang-cpu")
    speak(project, 1)
    # The box comes back with an address that nothing has joined; `up` anew joins it.
    project.kill("box")
    project.await_(lambda: project.state("box")["Running"] is True, 60)
    assert reached(project.metrics) == ""
    again = ("up", "--detach", "--force-recreate", "--wait", "sglang-cpu", "sidecar")
    project.compose("--profile", "sglang-cpu", *again)
    speak(project, 1)
    assert 'profile="sglang-cpu"' in project.metrics()


def test_ctrl_c_in_the_middle_of_the_start_leaves_the_lock_free(project: Project) -> None:
    first, second = "sglang-cpu-eagle", "sglang-cpu"
    with project.in_the_foreground(first) as process:
        project.await_(lambda: bool(project.container(first)), 60)
        project.await_(lambda: "[draftgate" in project.log(first), 60)
        process.send_signal(signal.SIGINT)
        process.wait(120)
    state = project.state(first)
    assert (state["Running"], state["ExitCode"]) == (False, ExitCode.TERMINATED)
    project.up(second)
    speak(project, 1)


def test_a_folder_of_models_that_is_missing_is_named(project: Project) -> None:
    project.environment["DRAFTGATE_MODELS"] = "/nowhere/models"
    project.environment["DRAFTGATE_VLLM_CUDA12_IMAGE"] = "draftgate/vllm-cpu"
    done = project.compose("--profile", "vllm-baseline", "create", "vllm-baseline", check=False)
    assert done.returncode != 0
    assert "bind source path does not exist: /nowhere/models" in done.stderr


def test_a_full_disk_is_named(project: Project, tmp_path: Path) -> None:
    full = tmp_path / "full.yaml"
    full.write_text(
        "services: {sglang-cpu: {tmpfs: !override "
        '["/state:uid=10001,gid=10001,mode=0700,size=4096", "/tmp:exec"]}}\n'
    )
    project.files.append(str(full))
    project.compose("--profile", "sglang-cpu", "up", "--detach", "sglang-cpu")
    project.await_(lambda: project.state("sglang-cpu")["Running"] is False, 60)
    assert project.state("sglang-cpu")["ExitCode"] == ExitCode.FOLDER_UNUSABLE
    assert "a disk that draftgate writes to is full" in project.log("sglang-cpu")


def test_a_wrong_base_image_fails_the_build_and_says_why(project: Project) -> None:
    project.environment["DRAFTGATE_BASE"] = "draftgate/absent:none"
    project.environment["DRAFTGATE_IMAGE"] = "draftgate/wrong"
    done = project.compose("build", "box", check=False)
    assert done.returncode != 0
    assert "draftgate/absent" in done.stderr


def test_an_image_built_from_a_clone_that_is_closed_to_others_works(tmp_path: Path) -> None:
    """As cloned under umask 077: the image's user is another one."""
    for name in ("docker", "requirements", "profiles", "models", "src"):
        shutil.copytree(REPOSITORY / name, tmp_path / name, ignore=shutil.ignore_patterns("*.whl"))
    for name in ("profiles", "models", "src"):
        subprocess.run(["chmod", "-R", "go-rwx", tmp_path / name], check=True)
    offline = OFFLINE.read_text() if OFFLINE.is_file() else ""
    said = dict(line.split("=", 1) for line in offline.splitlines())
    base = said.get("DRAFTGATE_BASE", "python:3.11-slim-bookworm")
    ca = said.get("DRAFTGATE_EXTRA_CA", str(REPOSITORY / "docker" / "no-extra-ca"))
    words = ["--target", "draftgate", "--build-arg", f"BASE={base}", "--secret", f"id=extra_ca,src={ca}"]
    build = ["docker", "build", "--quiet", "--file", str(tmp_path / "docker" / "Dockerfile"), *words]
    image = subprocess.run(
        [*build, str(tmp_path)], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    try:
        run = ["docker", "run", "--rm", image, "render", "vllm-cpu-eagle"]
        done = subprocess.run(run, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    finally:
        subprocess.run(["docker", "rmi", "--force", image], stdout=subprocess.DEVNULL, check=True)


def test_an_image_that_is_not_here_is_asked_of_no_registry(project: Project) -> None:
    project.environment["DRAFTGATE_SGLANG_CUDA12_IMAGE"] = "draftgate/absent"
    project.environment["DRAFTGATE_MODELS"] = "/tmp"
    done = project.compose("create", "sglang", check=False)
    assert done.returncode != 0
    assert "No such image: draftgate/absent" in done.stderr
    assert "Pull" not in done.stderr


def test_the_wrong_image_for_a_profile_is_named(project: Project) -> None:
    project.environment["DRAFTGATE_VLLM_CPU_IMAGE"] = "draftgate/sglang-cpu"
    project.compose("--profile", "vllm-cpu", "up", "--detach", "--no-build", "vllm-cpu")
    project.await_(lambda: project.state("vllm-cpu")["Running"] is False, 60)
    assert project.state("vllm-cpu")["ExitCode"] == ExitCode.ENGINE_MISSING
    assert "use the image of vllm-cpu" in project.log("vllm-cpu")


def test_after_a_restart_of_the_daemon_the_next_engine_serves(project: Project) -> None:
    """The engine drains or dies with its container; the rest comes back by itself."""
    project.up("sglang-cpu-eagle")
    speak(project, 1)
    project.restart_docker()
    project.await_(lambda: project.state("box")["Running"] is True, 60)
    project.await_(lambda: project.state("prometheus")["Running"] is True, 60)
    assert project.state("sglang-cpu-eagle")["Running"] is False
    project.up("sglang-cpu")
    speak(project, 1)
    assert 'profile="sglang-cpu"' in project.metrics()


def test_nothing_of_the_images_is_left_running() -> None:
    """Each project before this one took away all that it had started."""
    done = subprocess.run(
        ["docker", "ps", "--all", "--quiet", "--filter", "name=draftgate-test-"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
