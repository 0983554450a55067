"""Which processes belong to a launch, told apart from strangers, and how they end; with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.host import processes
from draftgate.host.processes import ProcessIdentity, find, identify, own_identity, send, wait_until
from draftgate.host.session import LAUNCH_ID, Session

LIMIT = 60.0
MARK = "0123456789abcdef"
# A leader that starts children (each writes its pid) and lives until it is told to end.
LEADER = """
import os, signal, subprocess, sys
folder = sys.argv[1]
for name in sys.argv[2:]:
    body = "import os, pathlib, signal, sys, time\\n"
    environment = dict(os.environ)
    if name == "stubborn":
        body += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\\n"
    if name == "retitled":
        environment = {}
    body += f"p = pathlib.Path({folder!r}) / '.{name}'\\n"
    body += f"p.write_text(str(os.getpid())); p.rename(p.parent / {name!r})\\n"
    body += "time.sleep(1000)\\n"
    if name == "daemon":
        body = "import os\\nif os.fork(): os._exit(0)\\n" + body
    cwd = "/" if name == "stranger" else None
    if name == "stranger":
        environment = {"PATH": "/"}
    argv = [sys.executable, "-c", body]
    subprocess.Popen(argv, env=environment, cwd=cwd, start_new_session=name == "escapee")
signal.pause()
"""

Leader = Callable[..., Session]


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    """``leader(name, …)``: a session whose leader has children of these names."""
    started: list[subprocess.Popen[bytes]] = []
    folder = tmp_path / MARK
    folder.mkdir()

    def go(*names: str) -> Session:
        child = subprocess.Popen(
            [sys.executable, "-c", LEADER, str(tmp_path), *names],
            env={**os.environ, LAUNCH_ID: MARK},
            cwd=folder,
            start_new_session=True,
        )
        started.append(child)
        for name in names:
            assert wait_until((tmp_path / name).exists, LIMIT)
        identity = identify(child.pid)
        assert identity is not None
        return Session(identity, MARK)

    yield go
    for child in started:
        for pid in [child.pid, *(int(path.read_text()) for path in tmp_path.iterdir() if path.is_file())]:
            if find(pid):
                os.kill(pid, signal.SIGKILL)
        child.wait()


def _pid(folder: Path, name: str) -> int:
    return int((folder / name).read_text())


def _kill(identity: ProcessIdentity) -> None:
    os.kill(identity.pid, signal.SIGKILL)
    os.waitpid(identity.pid, 0)


def test_members(leader: Leader, tmp_path: Path) -> None:
    names = ("plain", "stubborn", "daemon", "escapee", "retitled", "stranger")
    session = leader(*names)
    ours = {session.leader.pid, *(_pid(tmp_path, name) for name in names if name != "stranger")}
    assert {process.pid for process in session.members()} == ours
    _kill(session.leader)
    assert {process.pid for process in session.members()} == ours - {session.leader.pid}


def test_end_leaves_nobody_but_strangers(leader: Leader, tmp_path: Path) -> None:
    session = leader("plain", "stubborn", "daemon", "escapee", "retitled", "stranger")
    _kill(session.leader)
    assert session.end(0.5) == ()
    assert session.members() == ()
    assert find(_pid(tmp_path, "stranger")) is not None


def test_a_reused_number_is_no_session_of_ours(leader: Leader) -> None:
    session = leader("plain")
    # The same pid, started at another time, by another launch.
    other = Session(replace(session.leader, start_ticks=session.leader.start_ticks - 1), "another-launch")
    assert other.members() == ()
    assert other.end(0) == ()
    assert len(session.members()) == 2


def test_another_boot_or_namespace_says_nothing(leader: Leader) -> None:
    session = leader("plain")
    for elsewhere in (
        replace(session.leader, boot_id="before the restart"),
        replace(session.leader, pid_namespace="a container's"),
    ):
        assert Session(elsewhere, MARK).members() == ()
        assert not elsewhere.alive()
    assert session.leader.alive()


def test_another_users_processes_are_seen(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    session = leader("plain", "escapee")
    monkeypatch.setattr(
        "draftgate.host.session.environment_variable",
        lambda pid, _: None if pid != os.getpid() else "",
    )
    assert len(session.members()) == 2  # by the session's number; who left it cannot be seen


def test_a_pid_names_its_process_only_with_its_start(leader: Leader) -> None:
    session = leader()
    reused = replace(session.leader, start_ticks=session.leader.start_ticks + 1)
    assert not reused.alive()
    assert send(reused, signal.SIGKILL) is False
    assert session.leader.alive()
    assert send(session.leader, signal.SIGKILL) is True
    os.waitpid(session.leader.pid, 0)
    assert send(session.leader, signal.SIGKILL) is False


def test_a_zombie_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    identity = identify(child.pid)
    assert wait_until(lambda: find(child.pid) is None, LIMIT)
    assert Path(f"/proc/{child.pid}").exists()
    assert identity is None or not identity.alive()
    child.wait()


def test_names_with_blanks_and_parentheses(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    child = subprocess.Popen([program, "1000"])
    try:
        assert wait_until(lambda: (processes.command_line(child.pid) or "").endswith("1000"), LIMIT)
        process = find(child.pid)
        assert process is not None
        assert process.parent == os.getpid()
        assert process.session == os.getsid(0)
    finally:
        child.kill()
        child.wait()


def test_orphans_get_sigterm_before_sigkill(leader: Leader, tmp_path: Path) -> None:
    """The topmost is told, and ends its child itself."""
    session = leader("plain")
    script = (
        "import pathlib, signal, subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "def stop(*_):\n"
        f"    pathlib.Path({str(tmp_path)!r}, 'told').write_text(str(child.poll()))\n"
        "    child.kill(); child.wait(); sys.exit()\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        f"pathlib.Path({str(tmp_path)!r}, 'armed').touch()\n"
        "while True: signal.pause()\n"
    )
    core = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, LAUNCH_ID: MARK})
    try:
        assert wait_until((tmp_path / "armed").exists, LIMIT)
        _kill(session.leader)
        assert session.end(LIMIT) == ()
        assert (tmp_path / "told").read_text() == "None"
    finally:
        core.kill()
        core.wait()
        (tmp_path / "told").unlink(missing_ok=True)
        (tmp_path / "armed").unlink(missing_ok=True)


def test_start_ticks_count_from_boot() -> None:
    seconds = own_identity().start_ticks / os.sysconf("SC_CLK_TCK")
    assert 0 < seconds <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_process_in_the_middle_of_its_exec_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a moment the kernel shows neither words nor environment, though who started it knows already."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "exe").symlink_to("/bin/sleep")
    for name in ("cmdline", "environ"):
        (tmp_path / "7" / name).touch()

    def exec_ends(_seconds: float) -> None:
        (tmp_path / "7" / "environ").write_bytes(f"A=1\0{LAUNCH_ID}={MARK}\0".encode())
        (tmp_path / "7" / "cmdline").write_bytes(b"sleep\0001000\0")

    monkeypatch.setattr(processes, "_PROC", tmp_path)
    monkeypatch.setattr(time, "sleep", exec_ends)
    assert processes.environment_variable(7, LAUNCH_ID) == MARK


def test_who_has_no_environment_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen(["sleep", "1000"], env={})
    try:
        assert wait_until(lambda: processes.command_line(child.pid) == "sleep 1000", LIMIT)
        monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waits"))
        assert processes.environment_variable(child.pid, LAUNCH_ID) == ""
    finally:
        child.kill()
        child.wait()
