"""The whole composition in real Docker: a project for each test, on free ports, with a lock of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests
from testcontainers.compose import DockerCompose

from draftgate.errors import DockerUnusable
from draftgate.runtime import containers
from tests.conftest import REPOSITORY
from tests.engine.conftest import free_port

# From `up` until an engine answers, its image built.
START_SECONDS = 240.0
OFFLINE = REPOSITORY / "docker" / "offline.env"


@pytest.fixture(scope="session", autouse=True)
def _docker() -> None:
    """Docker as it is here; images are built once, from the offline base where that was made."""
    try:
        containers.check()
    except DockerUnusable as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip("; ".join(error.lines()))
    build = ["--profile", "vllm-cpu", "--profile", "sglang-cpu", "build"]
    subprocess.run(containers.compose(REPOSITORY / "compose.yaml", *build), check=True)


@dataclass
class Project:
    """One composition.

    Attributes:
        environment: what its variables are set to.
        files: of Compose, relative to the repository.
    """

    environment: dict[str, str]
    files: list[str] = field(default_factory=lambda: ["compose.yaml"])

    def compose(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._command(), "--profile", "*", *words],
            check=check,
            capture_output=True,
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, **self.environment},
        )

    @contextmanager
    def in_the_foreground(self, profile: str) -> Iterator[subprocess.Popen[bytes]]:
        """`docker compose --profile … up`, as in a terminal of its own."""
        process = subprocess.Popen(
            [*self._command(), "--profile", profile, "up"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd=REPOSITORY,
            env={**os.environ, **self.environment},
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def up(self, profile: str, *, wait: bool = True) -> None:
        """Start a profile in the background, by testcontainers."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            DockerCompose(
                REPOSITORY,
                compose_file_name=self.files,
                env_file=str(OFFLINE) if OFFLINE.is_file() else None,
                profiles=[profile],
                wait=wait,
            ).start()

    def url(self, name: str = "PORT") -> str:
        return f"http://127.0.0.1:{self.environment[f'DRAFTGATE_{name}']}"

    def container(self, service: str) -> str:
        return self.compose("ps", "--all", "--quiet", service).stdout.strip()

    def state(self, service: str) -> dict[str, object]:
        done = subprocess.run(
            ["docker", "inspect", self.container(service)], capture_output=True, text=True, check=True
        )
        state: dict[str, object] = json.loads(done.stdout)[0]["State"]
        return state

    def kill(self, service: str) -> None:
        """SIGKILL from outside, as when memory runs out: `docker kill` would count as a wish to stop."""
        pid = self.state(service)["Pid"]
        assert isinstance(pid, int)
        try:
            os.kill(pid, signal.SIGKILL)
        except PermissionError:
            pytest.skip("only root may kill a container's process from outside")

    def restart_docker(self) -> None:
        """As DRAFTGATE_TEST_RESTART_DOCKER says: this machine's daemon is not a test's to restart."""
        command = os.environ.get("DRAFTGATE_TEST_RESTART_DOCKER")
        if command is None:
            if os.environ.get("CI") == "true":
                pytest.fail("DRAFTGATE_TEST_RESTART_DOCKER is not set")
            pytest.skip("DRAFTGATE_TEST_RESTART_DOCKER does not say how to restart the daemon")
        subprocess.run(command, shell=True, check=True)

    def log(self, service: str) -> str:
        done = subprocess.run(
            ["docker", "logs", self.container(service)], capture_output=True, text=True, check=True
        )
        return done.stdout + done.stderr

    def healthy(self, service: str) -> bool:
        health = self.state(service).get("Health")
        return isinstance(health, dict) and health["Status"] == "healthy"

    def chat(self, content: str, tokens: int = 60) -> requests.Response:
        body = {
            "model": "tiny-python",
            "messages": [{"role": "user", "content": content}],
            "max_tokens": tokens,
            "temperature": 0,
        }
        return requests.post(f"{self.url()}/v1/chat/completions", json=body, timeout=60)

    def metrics(self) -> str:
        answer = requests.get(f"{self.url('SIDECAR_PORT')}/metrics", timeout=20)
        answer.raise_for_status()
        return answer.text

    def query(self, expression: str) -> float | None:
        """One value of Prometheus', None where it has none."""
        with suppress(requests.ConnectionError):
            address = f"{self.url('PROMETHEUS_PORT')}/api/v1/query"
            answer = requests.get(address, params={"query": expression}, timeout=20)
            found = answer.json()["data"]["result"]
            return float(found[0]["value"][1]) if found else None
        return None

    def rules_health(self) -> set[str]:
        """What Prometheus says of its rules, recording and alerting."""
        answer = requests.get(f"{self.url('PROMETHEUS_PORT')}/api/v1/rules", timeout=20)
        groups = answer.json()["data"]["groups"]
        assert {rule["type"] for group in groups for rule in group["rules"]} == {"recording", "alerting"}
        return {rule["health"] for group in groups for rule in group["rules"]}

    def await_(self, what: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        """Until ``what`` holds."""
        deadline = time.monotonic() + seconds
        while not what():
            if time.monotonic() > deadline:
                pytest.fail(f"not within {seconds} s; {self.compose('ps', '--all').stdout}")
            time.sleep(0.5)

    def _command(self) -> list[str]:
        offline = ["--env-file", str(OFFLINE)] if OFFLINE.is_file() else []
        return ["docker", "compose", *offline, *(word for file in self.files for word in ("--file", file))]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project that is not started yet, and is gone afterwards."""
    lock = tmp_path / "lock"
    lock.mkdir()
    lock.chmod(0o1777)
    ports = ("PORT", "SIDECAR_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")
    made = Project(
        {
            "COMPOSE_PROJECT_NAME": f"draftgate-test-{os.getpid()}-{free_port()}",
            "DRAFTGATE_LOCK": str(lock),
            **{f"DRAFTGATE_{port}": str(free_port()) for port in ports},
        }
    )
    yield made
    made.compose("down", "--volumes", "--remove-orphans", "--timeout", "5", check=False)
    # Those of profiles that compose.yaml does not know.
    label = f"label=com.docker.compose.project={made.environment['COMPOSE_PROJECT_NAME']}"
    found = subprocess.run(
        ["docker", "volume", "ls", "--quiet", "--filter", label], capture_output=True, text=True, check=True
    )
    if names := found.stdout.split():
        subprocess.run(["docker", "volume", "rm", *names], stdout=subprocess.DEVNULL, check=True)
