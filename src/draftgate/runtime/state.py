"""What runs in a state folder: the records that were written, judged by what is alive."""

from __future__ import annotations

import enum
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from draftgate.errors import AlreadyRunning, ExitCode
from draftgate.host.files import replace_file
from draftgate.host.processes import ProcessIdentity, boot_id, wait_until
from draftgate.host.session import Session
from draftgate.launch import record
from draftgate.launch.phases import Phase
from draftgate.launch.record import LaunchRecord, read_launch

_FILE_NAME = "run.json"
# A native `up` holds the state folder for as long as two processes take to start.
_PATIENCE_SECONDS = 5.0
_STOPPED_BY_SIGNAL = 128


class Run(BaseModel):
    """What `draftgate up` started. Times are seconds since the epoch."""

    model_config = ConfigDict(frozen=True)

    profile: str
    launcher: ProcessIdentity
    sidecar: ProcessIdentity | None
    base_url: str
    sidecar_url: str | None
    started_at: float


class State(enum.StrEnum):
    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    DEAD = "dead"


@dataclass(frozen=True)
class Status:
    """The truth about one state folder.

    Attributes:
        reason: why it is dead, draining or stopped.
        phase: while it starts; None where the launcher has not said.
        progress: done and total within the phase.
        since: of the state or phase, seconds since the epoch.
        launcher_pid, guard_pid, sidecar_pid: of those that live.
        left: how many processes of the engine live without launcher and guard.
        sidecar: whether it lives; None where none was started.
    """

    state: State
    profile: str | None = None
    reason: str | None = None
    phase: Phase | None = None
    progress: tuple[int, int] | None = None
    since: float | None = None
    base_url: str | None = None
    launcher_pid: int | None = None
    guard_pid: int | None = None
    left: int = 0
    sidecar: bool | None = None
    sidecar_pid: int | None = None
    sidecar_url: str | None = None

    @property
    def exit_code(self) -> ExitCode:
        """OK where all that was started lives, NOT_RUNNING where nothing was, else ENGINE_FAILED."""
        if self.state is State.DEAD or (self.sidecar is False and self.state is not State.STOPPED):
            return ExitCode.ENGINE_FAILED
        return ExitCode.NOT_RUNNING if self.state is State.STOPPED else ExitCode.OK


def judge(
    run: Run | None,
    launch: LaunchRecord | None,
    *,
    alive: Callable[[ProcessIdentity], bool],
    members: Callable[[Session], int],
) -> Status:
    """What the records mean.

    Args:
        launch: the last launch in the folder; another's than ``run``'s says nothing about ``run``.
        alive: whether that very process lives.
        members: how many processes of that session live.
    """
    if run is not None and launch is not None and launch.launcher != run.launcher:
        launch = None
    launcher = run.launcher if run else launch.launcher if launch else None
    if launcher is None:
        return Status(State.STOPPED)
    sidecar = run.sidecar if run else None
    session = launch.session if launch else None
    return replace(
        _of_launch(launcher, launch, started_by_up=run is not None, alive=alive, members=members),
        profile=run.profile if run else launch.profile if launch else None,
        base_url=run.base_url if run else launch.base_url if launch else None,
        launcher_pid=launcher.pid if alive(launcher) else None,
        guard_pid=session.leader.pid if session and alive(session.leader) else None,
        sidecar=alive(sidecar) if sidecar else None,
        sidecar_pid=sidecar.pid if sidecar and alive(sidecar) else None,
        sidecar_url=run.sidecar_url if run else None,
    )


def _of_launch(
    launcher: ProcessIdentity,
    launch: LaunchRecord | None,
    *,
    started_by_up: bool,
    alive: Callable[[ProcessIdentity], bool],
    members: Callable[[Session], int],
) -> Status:
    since = launch.since if launch else None
    if launch is not None and launch.end is not None:
        stopped = launch.end.exit_code > _STOPPED_BY_SIGNAL or not started_by_up
        reason = launch.end.what + (f": {launch.end.why}" if launch.end.why else "")
        return Status(State.STOPPED if stopped else State.DEAD, reason=reason, since=since)
    if alive(launcher):
        if launch is None:
            return Status(State.STARTING)
        state = {Phase.READY: State.READY, Phase.DRAINING: State.DRAINING}.get(launch.phase, State.STARTING)
        return Status(state, phase=launch.phase, progress=launch.progress, since=since)
    if launcher.boot_id != boot_id():
        return Status(State.DEAD, reason="the machine was restarted since", since=since)
    session = launch.session if launch else None
    if session is None:
        return Status(State.DEAD, reason="the launcher ended before it started the engine", since=since)
    if alive(session.leader):
        reason = "the launcher was killed; its guard ends the engine"
        return Status(State.DRAINING, reason=reason, since=since)
    left = members(session)
    guard = f", its guard too; {left} processes of the engine live" if left else ""
    return Status(State.DEAD, reason=f"the launcher was killed{guard}", since=since, left=left)


class StateFolder:
    """The records in one state folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One `up` or `down` at a time.

        Raises:
            AlreadyRunning: another one is at work, and goes on.
        """
        descriptor = os.open(self.path / "verb.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

        def taken() -> bool:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        try:
            if not wait_until(taken, _PATIENCE_SECONDS):
                raise AlreadyRunning("another `draftgate up` or `down` is at work", where=str(self.path))
            yield
        finally:
            os.close(descriptor)

    def run(self) -> Run | None:
        try:
            return Run.model_validate_json((self.path / _FILE_NAME).read_bytes())
        except (OSError, ValidationError):
            return None

    def launch(self) -> LaunchRecord | None:
        return read_launch(self.path)

    def status(self) -> Status:
        return judge(
            self.run(),
            self.launch(),
            alive=ProcessIdentity.alive,
            members=lambda session: len(session.members()),
        )

    def remember(self, run: Run) -> None:
        replace_file(self.path / _FILE_NAME, run.model_dump_json(indent=2) + "\n")

    def forget(self) -> None:
        """Nothing that the records name lives any more."""
        for name in (_FILE_NAME, record.FILE_NAME):
            (self.path / name).unlink(missing_ok=True)
