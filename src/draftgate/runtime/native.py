"""Engine and sidecar as detached processes of this machine, with a state folder that tells the truth."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from draftgate.errors import AlreadyRunning, DraftgateError, EngineFailed, ExitCode
from draftgate.host.files import private_folder
from draftgate.host.lock import refuse_if_held
from draftgate.host.port import refuse_if_taken
from draftgate.host.processes import Process, ProcessIdentity, identify, send, wait_until
from draftgate.host.session import ORPHAN_GRACE_SECONDS
from draftgate.launch.record import LaunchRecord
from draftgate.runtime.logfile import last_lines, open_anew
from draftgate.runtime.plan import Plan, plan
from draftgate.runtime.state import Run, State, StateFolder, Status
from draftgate.settings import settings

__all__ = ["Plan", "await_ready", "check", "down", "log_path", "plan", "status", "up", "writes_log"]

_ENGINE_LOG = "engine.log"
_SIDECAR_LOG = "sidecar.log"
_POLL_SECONDS = 0.2
_SIDECAR_STOP_SECONDS = 5.0
# For a launcher that died before it wrote how long it may take.
_STOP_SECONDS = 60.0


def up(planned: Plan) -> Run:
    """Start engine and sidecar in the background.

    Raises:
        AlreadyRunning: something runs in this state folder.
        LockHeld: another engine runs on this machine, and it is not to be waited for.
        EngineFailed: an address is taken.
        FolderUnusable: the state folder cannot be made.
    """
    folder = StateFolder(_path())
    with folder.alone():
        _refuse_if_running(folder.status())
        _check(planned)
        _clear(folder)
        launcher = _detach(planned.launcher, folder.path / _ENGINE_LOG)
        sidecar = None if planned.sidecar is None else _detach(planned.sidecar, folder.path / _SIDECAR_LOG)
        run = Run(
            profile=planned.profile.name,
            launcher=launcher,
            sidecar=sidecar,
            base_url=planned.base_url,
            sidecar_url=planned.sidecar_url,
            started_at=time.time(),
        )
        folder.remember(run)
        return run


def check(planned: Plan) -> None:
    """Raise what `up` would raise, and start nothing."""
    folder = StateFolder(_path())
    _refuse_if_running(folder.status())
    _check(planned)


def await_ready(on_change: Callable[[Status], None]) -> Status:
    """Wait until the engine that `up` started is ready; its launcher keeps the time limit.

    Raises:
        DraftgateError: it ended; the launcher's own words and exit code.
    """
    folder = StateFolder(_path())
    last: Status | None = None
    while True:
        status = folder.status()
        if status != last:
            on_change(status)
            last = status
        if status.state is State.READY:
            return status
        if status.state in (State.DEAD, State.STOPPED):
            raise _death(folder, status)
        time.sleep(_POLL_SECONDS)


def status() -> Status:
    return StateFolder(_path()).status()


def down(tell: Callable[[str], None], *, now: bool = False, dry_run: bool = False) -> tuple[str, ...]:
    """Stop what runs in the state folder: the engine first, drained, then the sidecar.

    Args:
        now: end running requests too.

    Returns:
        What was, or would be, ended, in words.

    Raises:
        AlreadyRunning: another `up` or `down` is at work.
        EngineFailed: something could not be ended.
    """
    folder = StateFolder(_path())
    if dry_run:
        return tuple(_living(folder.status()))
    with folder.alone():
        before, launch = folder.status(), folder.launch()
        if before.launcher_pid is not None or before.guard_pid is not None:
            limit = launch.stop_seconds if launch else _STOP_SECONDS
            pid = before.launcher_pid or before.guard_pid
            tell(f"stopping {before.profile} (pid {pid}); this may take up to {limit:g} s")
            _stop_engine(folder, launch, limit, now)
        _clear(folder)
        return tuple(_living(before))


def _living(status: Status) -> Iterator[str]:
    if status.launcher_pid is not None or status.guard_pid is not None:
        yield f"engine of {status.profile} (pid {status.launcher_pid or status.guard_pid})"
    if status.left:
        yield f"{status.left} processes that a dead launch of {status.profile} left"
    if status.sidecar_pid is not None:
        yield f"sidecar (pid {status.sidecar_pid})"


def _stop_engine(folder: StateFolder, launch: LaunchRecord | None, limit: float, now: bool) -> None:
    run = folder.run()
    launcher = run.launcher if run else launch.launcher if launch else None
    leader = launch.session.leader if launch and launch.session else None
    targets = [identity for identity in (launcher, leader) if identity is not None]
    target = next((identity for identity in targets if identity.alive()), None)
    if target is None:
        return
    send(target, signal.SIGTERM)

    def ended() -> bool:
        if now:
            # To launcher and guard alike, SIGINT after SIGTERM means: at once.
            send(target, signal.SIGINT)
        return not any(identity.alive() for identity in targets)

    if not wait_until(ended, limit):
        for identity in targets:
            send(identity, signal.SIGKILL)


def _clear(folder: StateFolder) -> None:
    """End what a dead launch left, then the sidecar, and forget the records."""
    launch, run = folder.launch(), folder.run()
    left: tuple[Process, ...] = launch.session.end(ORPHAN_GRACE_SECONDS) if launch and launch.session else ()
    if left:
        pids = ", ".join(f"pid {process.pid}" for process in left)
        raise EngineFailed("processes of the engine could not be ended", where=pids)
    if run is not None and run.sidecar is not None and run.sidecar.alive():
        send(run.sidecar, signal.SIGTERM)
        if not wait_until(lambda: not run.sidecar or not run.sidecar.alive(), _SIDECAR_STOP_SECONDS):
            send(run.sidecar, signal.SIGKILL)
    folder.forget()


def _check(planned: Plan) -> None:
    if not planned.wait_lock_seconds:
        refuse_if_held(settings().lock_dir)
        refuse_if_taken(planned.profile.server.host, planned.profile.server.port, "server")
    if planned.sidecar is not None and status().sidecar_pid is None:
        refuse_if_taken(planned.profile.sidecar.host, planned.profile.sidecar.port, "sidecar")


def _refuse_if_running(status: Status) -> None:
    if status.state in (State.STOPPED, State.DEAD):
        return
    pid = status.launcher_pid or status.guard_pid
    raise AlreadyRunning(
        f"profile {status.profile!r} already runs here: {status.state} (pid {pid})",
        where=f"{status.base_url}, state folder {_path()}",
        next_step="draftgate down",
    )


def _detach(argv: tuple[str, ...], log: Path) -> ProcessIdentity:
    descriptor = open_anew(log)
    try:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=descriptor, stderr=descriptor, start_new_session=True
        )
    finally:
        os.close(descriptor)
    identity = identify(child.pid)
    if identity is None:
        raise EngineFailed("the launcher ended at once", where=str(log), why=_last_words(log))
    return identity


def _death(folder: StateFolder, status: Status) -> DraftgateError:
    log = folder.path / _ENGINE_LOG
    launch = folder.launch()
    end = launch.end if launch else None
    if end is None:
        return EngineFailed(status.reason or "it was stopped", where=str(log), why=_last_words(log))
    error = EngineFailed(end.what, where=end.where, why=end.why, next_step=end.next_step or "draftgate logs")
    error.exit_code = ExitCode(end.exit_code)
    return error


def _last_words(log: Path) -> str | None:
    return last_lines(log, 5).decode(errors="replace").strip() or None


def log_path(*, sidecar: bool) -> Path:
    return _path() / (_SIDECAR_LOG if sidecar else _ENGINE_LOG)


def writes_log(*, sidecar: bool) -> bool:
    """Whether the one whose log it is lives."""
    now = status()
    return now.sidecar_pid is not None if sidecar else now.launcher_pid is not None


def _path() -> Path:
    return private_folder(settings().state_dir, "DRAFTGATE_STATE_DIR")
