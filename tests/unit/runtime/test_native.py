"""`up`, `down`, `status` and `logs` with the stand-in for an engine, detached as the real one is."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from draftgate.cli import status as status_verb
from draftgate.errors import AlreadyRunning, DraftgateError, EngineFailed, LockHeld
from draftgate.host.lock import gpu_lock
from draftgate.host.processes import ProcessIdentity, find, identify, own_identity, send, wait_until
from draftgate.host.session import Session
from draftgate.runtime import logfile, native
from draftgate.runtime.plan import Plan
from draftgate.runtime.state import Run, State, StateFolder
from draftgate.settings import settings
from tests.standin.launched import LIMIT, LongRequest, assert_lock_free, free_port, standin_argv
from tests.standin.launching import profile


@dataclass
class Box:
    """Folders of a machine on which nothing runs."""

    folder: Path

    @property
    def state(self) -> StateFolder:
        return StateFolder(self.folder / "state")

    def plan(self, *options: str | Path, sidecar: str = "import time; time.sleep(1000)") -> Plan:
        port = free_port()
        (self.folder / "pids").mkdir(exist_ok=True)
        return Plan(
            profile=profile(port),
            base_url=f"http://127.0.0.1:{port}",
            launcher=standin_argv(port, "--pids", self.folder / "pids", *options),
            sidecar=(sys.executable, "-c", sidecar),
            wait_lock_seconds=0.0,
        )

    def up(self, *options: str | Path) -> Run:
        run = native.up(self.plan(*options))
        native.await_ready(lambda _: None)
        return run

    def pid(self, role: str) -> int:
        path = self.folder / "pids" / role
        assert wait_until(path.exists, LIMIT)
        return int(path.read_text())


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    monkeypatch.setenv("DRAFTGATE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("DRAFTGATE_LOCK_DIR", str(tmp_path / "lock"))
    settings.cache_clear()
    # The default port of the sidecar may be taken by one that is really at work here.
    monkeypatch.setattr(native, "refuse_if_taken", lambda *_: None)
    box = Box(tmp_path)
    yield box
    for identity in _all(box):
        send(identity, signal.SIGKILL)
    if (launch := box.state.launch()) and launch.session:
        launch.session.end(0)
    settings.cache_clear()


def _all(box: Box) -> list[ProcessIdentity]:
    run, launch = box.state.run(), box.state.launch()
    found = [run.launcher, run.sidecar] if run else []
    return [identity for identity in (*found, launch.launcher if launch else None) if identity is not None]


def _nothing_left(box: Box, run: Run, session: Session | None) -> None:
    assert session is not None
    assert session.members() == ()
    assert not run.launcher.alive()
    assert run.sidecar is not None
    assert not run.sidecar.alive()
    assert native.status().state is State.STOPPED
    assert_lock_free(box.folder / "lock")


def _session(box: Box) -> Session:
    launch = box.state.launch()
    assert launch is not None
    assert launch.session is not None
    return launch.session


def test_up_status_down(box: Box) -> None:
    run = box.up()
    session = _session(box)
    status = native.status()
    assert (status.state, status.profile, status.base_url) == (State.READY, "standin", run.base_url)
    assert run.sidecar is not None
    assert (status.launcher_pid, status.sidecar_pid) == (run.launcher.pid, run.sidecar.pid)
    # Each leads a session of its own: the terminal's end is not theirs.
    assert os.getsid(run.launcher.pid) == run.launcher.pid
    assert os.getsid(run.sidecar.pid) == run.sidecar.pid
    assert os.readlink(f"/proc/{run.launcher.pid}/fd/0") == "/dev/null"
    assert (box.folder / "state").stat().st_mode & 0o777 == 0o700
    for name in ("engine.log", "sidecar.log", "run.json", "launch.json"):
        assert (box.folder / "state" / name).stat().st_mode & 0o777 == 0o600
    said: list[str] = []
    assert native.down(said.append, dry_run=True) == (
        f"engine of standin (pid {run.launcher.pid})",
        f"sidecar (pid {run.sidecar.pid})",
    )
    assert native.status() == status
    assert native.down(said.append) == (
        f"engine of standin (pid {run.launcher.pid})",
        f"sidecar (pid {run.sidecar.pid})",
    )
    assert said == [f"stopping standin (pid {run.launcher.pid}); this may take up to 22 s"]
    _nothing_left(box, run, session)
    assert native.down(said.append) == ()
    assert "stopped by SIGTERM" in (box.folder / "state" / "engine.log").read_text()


def test_the_sidecar_outlives_the_drain(box: Box) -> None:
    run = box.up("--finish", box.folder / "finish")
    session = _session(box)
    request = LongRequest(f"{run.base_url}/v1/completions", {"max_tokens": 100})
    log = native.log_path(sidecar=False)
    assert wait_until(lambda: "a long request runs" in log.read_text(), LIMIT)
    down = threading.Thread(target=native.down, args=(lambda _: None,))
    down.start()
    assert wait_until(lambda: native.status().state is State.DRAINING, LIMIT)
    assert native.status().sidecar is True
    with pytest.raises(AlreadyRunning):
        native.check(box.plan())
    (box.folder / "finish").touch()
    down.join(LIMIT)
    assert request.answer() == 200
    _nothing_left(box, run, session)


def test_down_now_ends_running_requests(box: Box) -> None:
    run = box.up("--finish", box.folder / "finish")
    session = _session(box)
    request = LongRequest(f"{run.base_url}/v1/completions", {"max_tokens": 100})
    log = native.log_path(sidecar=False)
    assert wait_until(lambda: "a long request runs" in log.read_text(), LIMIT)
    native.down(lambda _: None, now=True)
    assert request.answer() == 0
    _nothing_left(box, run, session)


def test_a_second_up_is_refused_and_names_the_first(box: Box) -> None:
    run = box.up()
    before = native.status()
    with pytest.raises(AlreadyRunning) as caught:
        native.up(box.plan())
    assert caught.value.lines() == [
        f"profile 'standin' already runs here: ready (pid {run.launcher.pid})",
        f"  where: {run.base_url}, state folder {box.folder}/state",
        "  next:  draftgate down",
    ]
    assert native.status() == before


def test_of_two_at_once_one_wins(box: Box) -> None:
    outcomes: list[str] = []

    def up(plan: Plan) -> None:
        try:
            native.up(plan)
        except AlreadyRunning:
            outcomes.append("refused")
        else:
            outcomes.append("won")

    racers = [threading.Thread(target=up, args=(box.plan(),)) for _ in range(3)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(LIMIT)
    assert sorted(outcomes) == ["refused", "refused", "won"]


def test_up_while_another_state_folder_holds_the_lock(box: Box) -> None:
    with gpu_lock(box.folder / "lock", wait_seconds=0, tell=pytest.fail) as lock:
        lock.name_holder("other", Session(own_identity(), "other"))
        with pytest.raises(LockHeld, match="profile 'other'"):
            native.up(box.plan())
    assert native.status().state is State.STOPPED


def test_up_wait_tells_of_the_death(box: Box) -> None:
    log = Path(__file__).parents[2] / "fixtures/logs/vllm-0.26.0-nested-aux-ids-ignored-fails.log"
    native.up(box.plan("--replay", log, "--exit-code", "1"))
    phases: list[str] = []
    with pytest.raises(EngineFailed) as caught:
        native.await_ready(lambda status: phases.append(status.state))
    assert caught.value.exit_code == 9
    assert (
        caught.value.what == "the engine ended with exit code 1 before it was ready, compiling and warming up"
    )
    assert "another number of the target's layers" in str(caught.value.why)
    assert native.status().state is State.DEAD
    assert native.status().sidecar is True
    # `down` clears it, and `up` would have.
    native.down(lambda _: None)
    assert native.status().state is State.STOPPED


def test_up_wait_tells_of_a_launcher_that_says_nothing(box: Box) -> None:
    plan = box.plan()
    broken = Plan(
        plan.profile, plan.base_url, (sys.executable, "-c", "raise SystemExit('no such verb')"), None, 0
    )

    # Whichever of the two sees it first.
    def up_and_wait() -> None:
        native.up(broken)
        native.await_ready(lambda _: None)

    with pytest.raises(DraftgateError) as caught:
        up_and_wait()
    assert caught.value.what in {
        "the launcher ended before it started the engine",
        "the launcher ended at once",
    }
    assert caught.value.why == "no such verb"


def test_a_killed_launcher_is_told_and_cleared_by_the_next_up(box: Box) -> None:
    first = box.up()
    session = _session(box)
    send(first.launcher, signal.SIGKILL)
    assert wait_until(lambda: native.status().state is State.DEAD, LIMIT)
    assert native.status().reason == "the launcher was killed"
    assert session.members() == ()
    second = box.up()
    assert first.sidecar is not None
    assert not first.sidecar.alive()
    assert second.launcher != first.launcher
    assert (box.folder / "state" / "engine.log.1").exists()


def test_a_killed_sidecar_is_told(box: Box) -> None:
    run = box.up()
    assert run.sidecar is not None
    send(run.sidecar, signal.SIGKILL)
    assert wait_until(lambda: native.status().sidecar is False, LIMIT)
    assert native.status().state is State.READY
    assert native.status().exit_code == 9
    session = _session(box)
    native.down(lambda _: None)
    _nothing_left(box, run, session)


def test_down_sweeps_what_launcher_and_guard_left(box: Box) -> None:
    run = box.up("--stubborn")
    session = _session(box)
    for role in ("api", "core", "worker"):
        box.pid(role)
    os.kill(session.leader.pid, signal.SIGSTOP)
    send(run.launcher, signal.SIGKILL)
    send(session.leader, signal.SIGKILL)
    assert wait_until(lambda: native.status().left == 3, LIMIT)
    assert native.down(lambda _: None)[0] == "3 processes that a dead launch of standin left"
    _nothing_left(box, run, session)


def test_after_a_restart_nothing_is_touched(box: Box) -> None:
    """Same pids, another boot: they are strangers now."""
    stranger = subprocess.Popen(["sleep", "1000"])
    try:
        identity = identify(stranger.pid)
        assert identity is not None
        before = ProcessIdentity(identity.pid, identity.start_ticks, "another boot", identity.pid_namespace)
        run = Run(
            profile="kimi",
            launcher=before,
            sidecar=before,
            base_url="http://127.0.0.1:1",
            sidecar_url=None,
            started_at=0.0,
        )
        native.status()
        box.state.remember(run)
        assert native.status().reason == "the machine was restarted since"
        assert native.down(lambda _: None) == ()
        assert find(stranger.pid) is not None
        assert native.status().state is State.STOPPED
    finally:
        stranger.kill()
        stranger.wait()


def test_a_foreground_launch_is_seen_and_stopped(box: Box) -> None:
    plan = box.plan()
    foreground = subprocess.Popen(plan.launcher, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: native.status().state is State.READY, LIMIT)
        with pytest.raises(AlreadyRunning):
            native.up(box.plan())
        assert native.down(lambda _: None) == (f"engine of standin (pid {foreground.pid})",)
        assert foreground.wait(LIMIT) == 143
    finally:
        foreground.kill()
        foreground.wait()


def test_the_status_table(box: Box, capsys: pytest.CaptureFixture[str]) -> None:
    import typer

    with pytest.raises(typer.Exit) as nothing:
        status_verb.status()
    assert nothing.value.exit_code == 11
    run = box.up()
    assert run.sidecar is not None
    capsys.readouterr()
    with pytest.raises(typer.Exit) as running:
        status_verb.status()
    assert running.value.exit_code == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["PART", "STATE", "PROFILE", "PID", "URL", "SINCE", "NOTE"]
    assert rows[1][:5] == ["engine", "ready", "standin", str(run.launcher.pid), run.base_url]
    assert rows[2] == ["sidecar", "running", "standin", str(run.sidecar.pid), "http://127.0.0.1:9310"]


def test_logs_are_followed_to_the_end(box: Box) -> None:
    run = box.up()
    path = native.log_path(sidecar=False)
    head = logfile.last_lines(path, 1)
    assert b"ready at" in head
    size = path.stat().st_size
    blocks: list[bytes] = []

    def follow() -> None:
        blocks.extend(logfile.follow(path, size, lambda: native.writes_log(sidecar=False)))

    follower = threading.Thread(target=follow)
    follower.start()
    os.kill(run.launcher.pid, signal.SIGTERM)
    follower.join(LIMIT)
    assert b"".join(blocks).splitlines()[-1].endswith(b"stopped by SIGTERM")
    assert logfile.last_lines(path, None) == path.read_bytes()


def test_taken_ports_are_told_first(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("DRAFTGATE_STATE_DIR", str(box.folder / "state"))
    monkeypatch.setenv("DRAFTGATE_LOCK_DIR", str(box.folder / "lock"))
    settings.cache_clear()
    with socket.create_server(("127.0.0.1", 0)) as server:
        plan = box.plan()
        taken = plan.profile.sidecar.model_copy(update={"port": server.getsockname()[1]})
        busy = Plan(
            plan.profile.model_copy(update={"sidecar": taken}), plan.base_url, plan.launcher, plan.sidecar, 0
        )
        with pytest.raises(EngineFailed) as caught:
            native.up(busy)
    assert caught.value.where == "sidecar.host, sidecar.port"
    assert native.status().state is State.STOPPED
