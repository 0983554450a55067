"""What `draftgate status` says, for every way in which records and processes can stand to each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from draftgate.errors import ExitCode
from draftgate.host.processes import ProcessIdentity, boot_id, own_identity
from draftgate.host.session import Session
from draftgate.launch.phases import Phase
from draftgate.launch.record import End, LaunchRecord
from draftgate.runtime.state import Run, State, StateFolder, Status, judge


def _process(pid: int, boot: str | None = None) -> ProcessIdentity:
    return ProcessIdentity(pid, start_ticks=pid * 10, boot_id=boot or boot_id(), pid_namespace="pid:[1]")


LAUNCHER, GUARD, SIDECAR, OTHER = (_process(pid) for pid in (1, 2, 3, 4))
RUN = Run(
    profile="kimi",
    launcher=LAUNCHER,
    sidecar=SIDECAR,
    base_url="http://127.0.0.1:8000",
    sidecar_url="http://127.0.0.1:9310",
    started_at=100.0,
)


def _launch(phase: Phase, *, end: End | None = None, launcher: ProcessIdentity = LAUNCHER) -> LaunchRecord:
    return LaunchRecord(
        profile="kimi",
        base_url="http://127.0.0.1:8000",
        launcher=launcher,
        session=None if phase is Phase.LOCK else Session(GUARD, "0123456789abcdef"),
        started_at=100.0,
        phase=phase,
        since=110.0,
        progress=(3, 64) if phase is Phase.WEIGHTS else None,
        stop_seconds=60.0,
        end=end,
    )


DIED = End(exit_code=9, what="the engine ended with exit code 1", why="memory ran out")
STOPPED = End(exit_code=143, what="stopped by SIGTERM")


@dataclass(frozen=True)
class Case:
    run: Run | None
    launch: LaunchRecord | None
    alive: tuple[ProcessIdentity, ...]
    state: State
    code: ExitCode
    reason: str | None = None
    phase: Phase | None = None
    members: int = 0


ALL = (LAUNCHER, GUARD, SIDECAR)
REBOOTED = RUN.model_copy(update={"launcher": _process(1, "before"), "sidecar": _process(3, "before")})
CASES = {
    "nothing ever ran": Case(None, None, (), State.STOPPED, ExitCode.NOT_RUNNING),
    "started, nothing written yet": Case(RUN, None, ALL, State.STARTING, ExitCode.OK),
    "another launch's record says nothing": Case(
        RUN, _launch(Phase.READY, launcher=OTHER), ALL, State.STARTING, ExitCode.OK
    ),
    "waits for the lock": Case(RUN, _launch(Phase.LOCK), ALL, State.STARTING, ExitCode.OK, phase=Phase.LOCK),
    "loads": Case(RUN, _launch(Phase.WEIGHTS), ALL, State.STARTING, ExitCode.OK, phase=Phase.WEIGHTS),
    "ready": Case(RUN, _launch(Phase.READY), ALL, State.READY, ExitCode.OK, phase=Phase.READY),
    "draining": Case(RUN, _launch(Phase.DRAINING), ALL, State.DRAINING, ExitCode.OK, phase=Phase.DRAINING),
    "sidecar killed": Case(
        RUN, _launch(Phase.READY), (LAUNCHER, GUARD), State.READY, ExitCode.ENGINE_FAILED, phase=Phase.READY
    ),
    "engine died": Case(
        RUN,
        _launch(Phase.ENDED, end=DIED),
        (SIDECAR,),
        State.DEAD,
        ExitCode.ENGINE_FAILED,
        "the engine ended with exit code 1: memory ran out",
    ),
    "launcher was told to stop": Case(
        RUN, _launch(Phase.ENDED, end=STOPPED), (SIDECAR,), State.STOPPED, ExitCode.NOT_RUNNING, STOPPED.what
    ),
    "launcher killed, guard at work": Case(
        RUN,
        _launch(Phase.READY),
        (GUARD, SIDECAR),
        State.DRAINING,
        ExitCode.OK,
        "the launcher was killed; its guard ends the engine",
    ),
    "launcher killed, guard done": Case(
        RUN, _launch(Phase.READY), (SIDECAR,), State.DEAD, ExitCode.ENGINE_FAILED, "the launcher was killed"
    ),
    "launcher and guard killed": Case(
        RUN,
        _launch(Phase.READY),
        (SIDECAR,),
        State.DEAD,
        ExitCode.ENGINE_FAILED,
        "the launcher was killed, its guard too; 3 processes of the engine live",
        members=3,
    ),
    "launcher killed before it had a guard": Case(
        RUN,
        _launch(Phase.LOCK),
        (SIDECAR,),
        State.DEAD,
        ExitCode.ENGINE_FAILED,
        "the launcher ended before it started the engine",
    ),
    "launcher never wrote": Case(
        RUN,
        None,
        (),
        State.DEAD,
        ExitCode.ENGINE_FAILED,
        "the launcher ended before it started the engine",
    ),
    "restarted machine": Case(
        REBOOTED,
        _launch(Phase.READY, launcher=REBOOTED.launcher),
        (),
        State.DEAD,
        ExitCode.ENGINE_FAILED,
        "the machine was restarted since",
    ),
    "foreground, ready": Case(
        None, _launch(Phase.READY), (LAUNCHER, GUARD), State.READY, ExitCode.OK, phase=Phase.READY
    ),
    "foreground, died earlier": Case(
        None,
        _launch(Phase.ENDED, end=DIED),
        (),
        State.STOPPED,
        ExitCode.NOT_RUNNING,
        "the engine ended with exit code 1: memory ran out",
    ),
    "foreground, killed": Case(
        None, _launch(Phase.READY), (), State.DEAD, ExitCode.ENGINE_FAILED, "the launcher was killed"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_truth_table(case: Case) -> None:
    status = judge(case.run, case.launch, alive=case.alive.__contains__, members=lambda _: case.members)
    nothing = case.run is None and case.launch is None
    known = case.launch is not None and (case.run is None or case.launch.launcher == case.run.launcher)
    assert status == Status(
        state=case.state,
        profile=None if nothing else "kimi",
        reason=case.reason,
        phase=case.phase,
        progress=(3, 64) if case.phase is Phase.WEIGHTS else None,
        since=110.0 if known else None,
        base_url=None if nothing else "http://127.0.0.1:8000",
        launcher_pid=1 if LAUNCHER in case.alive else None,
        guard_pid=2 if GUARD in case.alive and known and case.phase is not Phase.LOCK else None,
        left=case.members,
        sidecar=None if case.run is None else SIDECAR in case.alive,
        sidecar_pid=3 if case.run is not None and SIDECAR in case.alive else None,
        sidecar_url=None if case.run is None else "http://127.0.0.1:9310",
    )
    assert status.exit_code is case.code


@pytest.mark.parametrize("text", ["", "{", "[]", '{"profile": 1}', "\0"])
def test_broken_records_are_no_records(tmp_path: Path, text: str) -> None:
    folder = StateFolder(tmp_path)
    for name in ("run.json", "launch.json"):
        (folder.path / name).write_text(text)
    assert folder.status() == Status(State.STOPPED)


def test_records_are_private_and_whole(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.remember(RUN)
    assert folder.run() == RUN
    record = _launch(Phase.READY)
    record.write(folder.path)
    assert folder.launch() == record
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.path.iterdir()} == {
        "run.json": 0o600,
        "launch.json": 0o600,
    }
    folder.forget()
    assert list(folder.path.iterdir()) == []


def test_the_live_process_is_found_alive() -> None:
    run = RUN.model_copy(update={"launcher": own_identity(), "sidecar": None})
    assert judge(run, None, alive=ProcessIdentity.alive, members=lambda _: 0).state is State.STARTING
