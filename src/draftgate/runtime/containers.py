"""Docker and Compose: the one module that talks to them.

Compose is a program without a library, so it is run; what runs is asked of the daemon by its own library.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftgate.data import data_root
from draftgate.errors import AlreadyRunning, DockerUnusable, ExitCode, NotRunning
from draftgate.host.files import private_folder, replace_file
from draftgate.runtime.state import StateFolder
from draftgate.settings import settings

_PROJECT = "draftgate"
# What stands around engines.
AROUND = frozenset({"box", "sidecar", "prometheus", "grafana", "gpu-metrics"})
# By nothing, Ctrl-C or SIGTERM.
_STOPPED = frozenset({0, ExitCode.INTERRUPTED, ExitCode.TERMINATED})
_SETTING = "DRAFTGATE_STATE_DIR"
_OLDEST_ENGINE = (20, 10)
_OLDEST_COMPOSE = (2, 20)
_ASK_SECONDS = 15
_NOT_OURS = frozenset({"COMPOSE_FILE", "COMPOSE_PROFILES", "COMPOSE_ENV_FILES"})
# Written by docker/offline: images that stand in for those of a registry.
_OFFLINE = "docker/offline.env"


@dataclass(frozen=True)
class Container:
    """One container of the project.

    Attributes:
        state: as Docker says it (running, exited …), with its health where it has one.
        code: how it ended, None while it runs.
    """

    service: str
    name: str
    state: str
    code: int | None
    image: str
    started_at: str


def check() -> None:
    """Nothing, where Docker and Compose can be used.

    Raises:
        DockerUnusable: they are not here, do not run, are too old, or are not for this user.
    """
    if shutil.which("docker") is None:
        raise DockerUnusable(
            "Docker is not here",
            why="there is no program named docker on the path",
            next_step="install Docker Engine 20.10 or newer with the Compose plugin, or use --runtime native",
        )
    _check_engine()
    done = subprocess.run(
        ["docker", "compose", "version", "--short"], capture_output=True, text=True, check=False
    )
    found = _version(done.stdout)
    if done.returncode != 0 or found is None or found < _OLDEST_COMPOSE:
        oldest = ".".join(map(str, _OLDEST_COMPOSE))
        raise DockerUnusable(
            f"Docker Compose {oldest} or newer is needed",
            why=f"there is {done.stdout.strip()}" if found else "`docker compose` is not a command here",
            next_step="install the package docker-compose-plugin (or docker-compose-v2)",
        )


def usable() -> bool:
    """Whether `check` finds nothing."""
    try:
        check()
    except DockerUnusable:
        return False
    return True


def compose_file() -> Path:
    """What `up` writes."""
    return private_folder(settings().state_dir, _SETTING) / "compose.yaml"


def lock_folder() -> Path:
    """The folder of the GPU lock that containers take, on this machine."""
    return Path(os.environ.get("DRAFTGATE_LOCK") or "/run/lock") / "draftgate"


def start_command(profile: str) -> tuple[str, ...]:
    """What `up` runs; images are built where their sources are."""
    build = ("--build",) if (data_root() / "docker" / "Dockerfile").is_file() else ()
    return compose(compose_file(), "--profile", profile, "up", "--detach", *build)


def up(text: str, profile: str, *, wait: bool) -> int:
    """Start a profile of the compose.yaml ``text`` and what stands around it.

    Returns:
        0; INTERRUPTED; with ``wait`` also the exit code of the engine that ended.

    Raises:
        AlreadyRunning: another engine's container runs, or another `up` is at work.
        DockerUnusable: Compose failed.
    """
    with StateFolder(compose_file().parent).alone():
        refuse_if_running()
        replace_file(compose_file(), text)
        code = _run(start_command(profile))
    # Others need not be kept from `down` while an engine starts.
    if code == 0 and wait:
        code = _run(compose(compose_file(), "--profile", profile, "up", "--wait", "--no-recreate"))
        ended = next((one for one in containers() if one.service == profile and one.code), None)
        if ended is not None and ended.code:
            return ended.code
    return _checked(code)


def refuse_if_running() -> None:
    """Raise AlreadyRunning where an engine's container runs, or will by itself."""
    engines = [one for one in containers() if one.service not in AROUND]
    running = next((one for one in engines if one.code is None or one.state == "restarting"), None)
    if running is not None:
        raise AlreadyRunning(
            f"profile {running.service!r} already runs here: {running.state}",
            where=f"container {running.name}",
            next_step="draftgate down --runtime docker",
        )


def down(*, now: bool) -> int:
    """Stop everything of the project, whichever file it came from, running requests first; volumes stay."""
    words = ("down", "--remove-orphans", *(("--timeout", "0") if now else ()))
    # By the containers' labels: what runs need not be what a file says by now.
    return _checked(_run(("docker", "compose", "--project-name", project(), *words)))


def logs(service: str | None, *, follow: bool, lines: int | None) -> Iterator[bytes]:
    """What a service wrote; of the engine that was started last where none is named.

    Raises:
        NotRunning: there is no such container.
    """
    found = [
        one
        for one in containers()
        if (one.service not in AROUND if service is None else one.service == service)
    ]
    if not found:
        what = f"there is no container of {service or 'an engine'}"
        raise NotRunning(what, next_step="draftgate up PROFILE --runtime docker")
    newest = max(found, key=lambda one: one.started_at)
    with _client() as client:
        tail = "all" if lines is None else lines
        yield from client.containers.get(newest.name).logs(stream=True, follow=follow, tail=tail)


def compose(file: Path, *words: str) -> tuple[str, ...]:
    """A command of Compose on this file; paths in it are relative to where the data lies."""
    root = data_root()
    offline = root / _OFFLINE
    environment = ("--env-file", str(offline)) if offline.is_file() else ()
    where = ("--project-name", project(), "--project-directory", str(root), *environment)
    return ("docker", "compose", *where, "--file", str(file), *words)


def project() -> str:
    """Compose's own variable renames it; an .env file that Compose would find does not."""
    return os.environ.get("COMPOSE_PROJECT_NAME") or _PROJECT


def containers() -> tuple[Container, ...]:
    """What there is of the project, running or not, by service."""
    return tuple(sorted(_containers(), key=lambda one: one.service))


def exit_code(found: Sequence[Container], *, ready: bool) -> ExitCode:
    """OK where an engine runs, TIMED_OUT where it is to be ready and is not, ENGINE_FAILED, NOT_RUNNING."""
    engines = [one for one in found if one.service not in AROUND]
    running = [one for one in engines if one.code is None]
    if not running:
        failed = any(one.code not in _STOPPED for one in engines)
        return ExitCode.ENGINE_FAILED if failed else ExitCode.NOT_RUNNING
    healthy = any(one.state.endswith(", healthy") for one in running)
    return ExitCode.TIMED_OUT if ready and not healthy else ExitCode.OK


def _containers() -> Iterator[Container]:
    with _client() as client:
        label = f"com.docker.compose.project={project()}"
        for one in client.containers.list(all=True, filters={"label": label}):
            state = one.attrs["State"]
            health = state.get("Health", {}).get("Status")
            # Paused too; one that Docker starts again and again is not.
            running = state["Running"] and not state["Restarting"]
            yield Container(
                service=one.labels.get("com.docker.compose.service", ""),
                name=one.name,
                state=f"{state['Status']}, {health}" if health and running else state["Status"],
                code=None if running else state["ExitCode"],
                image=one.attrs["Config"]["Image"],
                started_at=state["StartedAt"],
            )


def _check_engine() -> None:
    with _client() as client:
        found = _version(client.version()["Version"])
    if found is not None and found < _OLDEST_ENGINE:
        oldest = ".".join(map(str, _OLDEST_ENGINE))
        raise DockerUnusable(
            f"Docker Engine {oldest} or newer is needed",
            why=f"there is {'.'.join(map(str, found))}",
            next_step="install a newer one, or use --runtime native",
        )


class _client:
    """The daemon, with what it may answer instead turned into errors that say what to do."""

    def __enter__(self) -> Any:
        from docker.errors import DockerException

        import docker

        try:
            self._docker = docker.from_env(timeout=_ASK_SECONDS)
            self._docker.ping()
        except DockerException as error:
            raise _unreachable(error) from None
        return self._docker

    def __exit__(self, *_: object) -> None:
        self._docker.close()


def _unreachable(error: Exception) -> DockerUnusable:
    text = str(error)
    where = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if "PermissionError" in text or "Permission denied" in text:
        return DockerUnusable(
            "Docker is not for this user",
            where=where,
            why="the daemon's socket may not be written",
            next_step="sudo usermod -aG docker $USER, then log in again",
        )
    if "is too old" in text or "too new" in text:
        return DockerUnusable("Docker's versions do not fit each other", where=where, why=text)
    return DockerUnusable(
        "Docker does not run",
        where=where,
        why=text.splitlines()[0] if text else type(error).__name__,
        next_step="start it: sudo systemctl start docker",
    )


def _version(text: str) -> tuple[int, ...] | None:
    match = re.match(r"v?(\d+)\.(\d+)", text.strip())
    return (int(match[1]), int(match[2])) if match else None


def _run(argv: Sequence[str]) -> int:
    """Run it on this terminal. Ctrl-C reaches it too, and it is left to end itself, in order."""
    # Not with the user's own files and profiles beside ours.
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
    with subprocess.Popen(argv, cwd=compose_file().parent, env=environment) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue


def _checked(code: int) -> int:
    """The exit code of Compose where it is ours too: its others mean something else here."""
    if code in (0, ExitCode.INTERRUPTED):
        return code
    raise DockerUnusable(
        f"docker compose ended with {code}", why="its own words stand above", next_step="docs/containers.md"
    )
