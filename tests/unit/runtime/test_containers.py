"""What is said where Docker cannot be used; a socket stands for the daemon (tests/container has it)."""

from __future__ import annotations

import http.server
import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from draftgate.cli.runtime import Runtime, for_start, of_what_runs
from draftgate.cli.up import up
from draftgate.engine.pins import PINS
from draftgate.errors import DockerUnusable, EngineMissing, ExitCode
from draftgate.host.processes import wait_until
from draftgate.runtime import containers
from draftgate.runtime.containers import Container
from draftgate.settings import settings

Daemon = Callable[..., None]


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("STATE", "DATA", "LOCK"):
        monkeypatch.setenv(f"DRAFTGATE_{name}_DIR", str(tmp_path / name))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("DOCKER_TLS_VERIFY", raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    (tmp_path / "bin").mkdir()
    settings.cache_clear()
    yield tmp_path
    settings.cache_clear()


def program(folder: Path, script: str) -> None:
    """A program named docker."""
    file = folder / "bin" / "docker"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.fixture
def daemon(folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """``daemon(version="20.10.5")``: a daemon of that version answers."""
    servers: list[socketserver.UnixStreamServer] = []

    def start(version: str = "28.0.1") -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(
                    {"Version": version, "ApiVersion": "1.41", "MinAPIVersion": "1.12"}
                ).encode()
                body = b"OK" if self.path.endswith("_ping") else body
                body = b"[]" if "containers" in self.path else body
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def address_string(self) -> str:
                return "socket"

            def log_message(self, *_: object) -> None:
                pass

        server = socketserver.ThreadingUnixStreamServer(str(folders / "docker.sock"), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{folders}/docker.sock")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def refused() -> str:
    with pytest.raises(DockerUnusable) as caught:
        containers.check()
    assert caught.value.exit_code is ExitCode.DOCKER_UNUSABLE
    assert not containers.usable()
    return caught.value.what


def test_no_docker() -> None:
    assert refused() == "Docker is not here"


def test_no_daemon(folders: Path) -> None:
    program(folders, "exit 0")
    assert refused() == "Docker does not run"


def test_how_a_refused_socket_is_told() -> None:
    error = containers._unreachable(
        Exception("('Connection aborted.', PermissionError(13, 'Permission denied'))")
    )
    assert error.what == "Docker is not for this user"


def test_an_old_daemon(folders: Path, daemon: Daemon) -> None:
    program(folders, "echo v2.26.1")
    daemon("19.03.15")
    assert refused() == "Docker Engine 20.10 or newer is needed"


@pytest.mark.parametrize(
    "script", ["echo 'docker: compose is not a docker command' >&2; exit 1", "echo 1.29.2"]
)
def test_no_compose(folders: Path, daemon: Daemon, script: str) -> None:
    program(folders, script)
    daemon()
    assert refused() == "Docker Compose 2.20 or newer is needed"


def test_docker_as_it_should_be(folders: Path, daemon: Daemon) -> None:
    program(folders, "echo 2.26.1-4")
    daemon()
    containers.check()
    assert containers.containers() == ()


def test_the_runtime_that_is_there_is_taken(folders: Path, daemon: Daemon) -> None:
    pin = PINS[0]
    with pytest.raises(EngineMissing):
        for_start(None, pin)
    with pytest.raises(DockerUnusable):
        for_start(Runtime.DOCKER, pin)
    program(folders, "echo 2.26.1")
    daemon()
    assert for_start(None, pin) is Runtime.DOCKER
    with pytest.raises(EngineMissing):
        for_start(Runtime.NATIVE, pin)
    assert of_what_runs(None) is Runtime.NATIVE
    assert of_what_runs(Runtime.DOCKER) is Runtime.DOCKER


def container(service: str, state: str, code: int | None = None) -> Container:
    return Container(service, f"draftgate-{service}-1", state, code, "image", "2026-01-01T00:00:00Z")


def test_untold_only_what_was_started_here_is_stopped(
    folders: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers that somebody started with Compose are seen, and no more."""
    program(folders, "echo 2.26.1")
    daemon()
    monkeypatch.setattr(containers, "containers", lambda: (container("a", "running"),))
    assert of_what_runs(None) is Runtime.DOCKER
    assert of_what_runs(None, ours=True) is Runtime.NATIVE
    containers.compose_file().touch()
    assert of_what_runs(None, ours=True) is Runtime.DOCKER


@pytest.mark.parametrize(
    ("found", "ready", "code"),
    [
        ((), False, ExitCode.NOT_RUNNING),
        ((container("box", "running"),), False, ExitCode.NOT_RUNNING),
        ((container("a", "running, starting"),), False, ExitCode.OK),
        ((container("a", "running, starting"),), True, ExitCode.TIMED_OUT),
        ((container("a", "running, unhealthy"),), True, ExitCode.TIMED_OUT),
        ((container("a", "running, healthy"),), True, ExitCode.OK),
        ((container("a", "exited", 9),), False, ExitCode.ENGINE_FAILED),
        ((container("a", "exited", 143),), False, ExitCode.NOT_RUNNING),
        ((container("a", "exited", 137), container("b", "running, healthy")), True, ExitCode.OK),
    ],
)
def test_the_exit_code_is_the_engines(found: tuple[Container, ...], ready: bool, code: ExitCode) -> None:
    assert containers.exit_code(found, ready=ready) is code


def test_a_failure_of_compose_is_no_code_of_ours(folders: Path, daemon: Daemon) -> None:
    """Its 15 is a wrong file, and here an address that is taken."""
    daemon()
    program(folders, "echo Invalid hostPort: abc >&2; exit 15")
    with pytest.raises(DockerUnusable, match="docker compose ended with 15"):
        containers.up("services: {}", "x", wait=False)
    program(folders, "exit 130")
    assert containers.up("services: {}", "x", wait=False) == ExitCode.INTERRUPTED
    program(folders, "exit 1")
    with pytest.raises(DockerUnusable):
        containers.down(now=False)


def test_what_the_users_environment_says_to_compose(
    folders: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project may be named; other files and profiles would be started beside ours."""
    daemon()
    program(folders, f'echo "$@ ${{COMPOSE_FILE-none}} ${{COMPOSE_PROFILES-none}}" >>{folders}/said')
    for name in ("FILE", "PROFILES", "PROJECT_NAME"):
        monkeypatch.setenv(f"COMPOSE_{name}", f"my-{name}")
    containers.up("services: {}", "x", wait=False)
    containers.down(now=True)
    up, down = (folders / "said").read_text().splitlines()
    assert up.startswith("compose --project-name my-PROJECT_NAME ")
    assert up.endswith(" --profile x up --detach --build none none")
    assert down == "compose --project-name my-PROJECT_NAME down --remove-orphans --timeout 0 none none"


def test_ctrl_c_leaves_compose_to_end_itself(folders: Path) -> None:
    """In its own time, whatever that is: killed in the middle it leaves half a composition."""
    program(
        folders,
        f"""PATH=/usr/bin:/bin
trap 'sleep 1; touch {folders}/ended; exit 130' INT
touch {folders}/started
while :; do sleep 0.1; done""",
    )
    code = "import sys; from draftgate.runtime import containers; sys.exit(containers.down(now=False))"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process:
        try:
            assert wait_until((folders / "started").exists, 60)
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(60) == ExitCode.INTERRUPTED
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert (folders / "ended").exists()


def test_two_locks_are_told(
    folders: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program(folders, "echo 2.26.1")
    daemon()
    monkeypatch.setenv("DRAFTGATE_LOCK", str(folders / "theirs"))
    up("vllm-cpu", runtime=Runtime.DOCKER, dry_run=True)
    said = capsys.readouterr()
    assert f"containers take the GPU lock in {folders}/theirs/draftgate, native engines in" in said.err
    assert said.out.startswith("would be started with docker compose --project-name draftgate ")
    monkeypatch.setenv("DRAFTGATE_LOCK_DIR", str(folders / "theirs" / "draftgate"))
    settings.cache_clear()
    up("vllm-cpu", runtime=Runtime.DOCKER, dry_run=True)
    assert capsys.readouterr().err == ""
