"""The GPU lock: one holder, named; free when and only when nothing of the holder can live."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.errors import FolderUnusable, LockHeld
from draftgate.host.lock import HeldLock, current_holder, gpu_lock, refuse_if_held
from draftgate.host.processes import find, own_identity, wait_until
from draftgate.host.session import LAUNCH_ID, Session

LIMIT = 60.0
SESSION = Session(own_identity(), "no-launch-has-this-id")


def _take(folder: Path, stack: ExitStack) -> HeldLock:
    return stack.enter_context(gpu_lock(folder, wait_seconds=0, tell=pytest.fail))


def test_a_held_lock_is_refused_and_its_holder_named(tmp_path: Path) -> None:
    with ExitStack() as stack:
        _take(tmp_path, stack).name_holder("kimi", SESSION)
        with pytest.raises(LockHeld) as caught, gpu_lock(tmp_path, wait_seconds=0, tell=pytest.fail):
            pass
        holder = current_holder(tmp_path)
        assert holder is not None
        assert (holder.profile, holder.launcher_pid, holder.session) == ("kimi", os.getpid(), SESSION)
        assert caught.value.what == f"the GPU lock is held by {holder.describe()}"
        assert holder.describe().startswith(
            f"profile 'kimi' of user {holder.user} (launcher pid {os.getpid()}) since "
        )
        with pytest.raises(LockHeld):
            refuse_if_held(tmp_path)
    assert current_holder(tmp_path) is None
    refuse_if_held(tmp_path)


def test_a_held_lock_without_a_name(tmp_path: Path) -> None:
    with ExitStack() as stack:
        _take(tmp_path, stack)
        with pytest.raises(LockHeld, match="an unnamed process"):
            refuse_if_held(tmp_path)


def test_waiting_says_for_whom_and_gives_up(tmp_path: Path) -> None:
    said: list[str] = []
    with ExitStack() as stack:
        _take(tmp_path, stack).name_holder("kimi", SESSION)
        with (
            pytest.raises(LockHeld, match=r"still held after 0\.5 s by profile 'kimi'"),
            gpu_lock(tmp_path, wait_seconds=0.5, tell=said.append),
        ):
            pass
    assert len(said) == 1
    assert said[0].startswith("the GPU lock is held by profile 'kimi'")


def test_a_child_that_inherits_it_holds_it(tmp_path: Path) -> None:
    with ExitStack() as stack:
        lock = _take(tmp_path, stack)
        child = subprocess.Popen(["sleep", "1000"], pass_fds=[lock.descriptor])
    try:
        with pytest.raises(LockHeld):
            refuse_if_held(tmp_path)
    finally:
        child.kill()
        child.wait()
    refuse_if_held(tmp_path)


def test_a_child_that_does_not_inherit_it_does_not(tmp_path: Path) -> None:
    with ExitStack() as stack:
        _take(tmp_path, stack)
        child = subprocess.Popen(["sleep", "1000"], close_fds=False)
    try:
        refuse_if_held(tmp_path)
    finally:
        child.kill()
        child.wait()


def test_what_a_dead_holder_left_is_swept(tmp_path: Path) -> None:
    left = subprocess.Popen(["sleep", "1000"], env={**os.environ, LAUNCH_ID: "dead"}, start_new_session=True)
    stranger = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    said: list[str] = []
    try:
        with ExitStack() as stack:
            # The leader is dead by now, and its pid another's.
            leader = replace(own_identity(), start_ticks=own_identity().start_ticks - 1)
            _take(tmp_path, stack).name_holder("kimi", Session(leader, "dead"))
        with gpu_lock(tmp_path, wait_seconds=0, tell=said.append):
            assert find(left.pid) is None
            assert find(stranger.pid) is not None
            # What was swept is not swept again.
            assert (tmp_path / "gpu.lock").read_text().strip() == ""
    finally:
        for child in (left, stranger):
            child.kill()
            child.wait()
    assert [text.split(":")[0] for text in said] == ["ending 1 processes that a dead launch left"]


def test_what_cannot_be_swept_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        _take(tmp_path, stack).name_holder("kimi", SESSION)
    me = find(os.getpid())
    assert me is not None
    monkeypatch.setattr(Session, "members", lambda _: (me,))
    monkeypatch.setattr(Session, "end", lambda _self, _grace: (me,))
    with pytest.raises(LockHeld) as caught, gpu_lock(tmp_path, wait_seconds=0, tell=lambda _: None):
        pass
    assert caught.value.what.startswith("processes of a dead launch still live: profile 'kimi'")
    assert f"pid {os.getpid()}: " in str(caught.value.why)


@pytest.mark.parametrize("text", ["", "{}", "nonsense", '{"session": 1}', "\0" * 4096, "[]"])
def test_a_broken_record_is_no_obstacle(tmp_path: Path, text: str) -> None:
    (tmp_path / "gpu.lock").write_text(text)
    with ExitStack() as stack:
        _take(tmp_path, stack).name_holder("kimi", SESSION)
        holder = current_holder(tmp_path)
        assert holder is not None
        assert holder.profile == "kimi"


def test_a_shorter_record_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    with ExitStack() as stack:
        lock = _take(tmp_path, stack)
        for profile in ("long" * 50, "short"):
            lock.name_holder(profile, SESSION)
            assert json.loads((tmp_path / "gpu.lock").read_text())["profile"] == profile
        lock.forget_holder()
        assert (tmp_path / "gpu.lock").read_text().strip() == ""


def test_every_user_may_take_it(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "lock"
    old = os.umask(0o077)
    try:
        refuse_if_held(folder)
        with ExitStack() as stack:
            _take(folder, stack)
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE((folder / "gpu.lock").stat().st_mode) == 0o666


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("as it was")
    (tmp_path / "gpu.lock").symlink_to(precious)
    with pytest.raises(FolderUnusable), gpu_lock(tmp_path, wait_seconds=0, tell=pytest.fail):
        pass
    assert precious.read_text() == "as it was"


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(FolderUnusable) as caught,
        gpu_lock(tmp_path / "file" / "lock", wait_seconds=0, tell=pytest.fail),
    ):
        pass
    assert caught.value.lines() == [
        f"a folder that draftgate needs cannot be used: {tmp_path}/file/lock",
        f"  where: DRAFTGATE_LOCK_DIR={tmp_path}/file/lock",
        "  why:   Not a directory",
        "  next:  set DRAFTGATE_LOCK_DIR to a folder that you can write",
    ]


def _race(folder: Path, barrier: object, results: object) -> None:
    barrier.wait()  # type: ignore[attr-defined]
    try:
        with gpu_lock(folder, wait_seconds=0, tell=lambda _: None):
            results.put("won")  # type: ignore[attr-defined]
            signal.pause()
    except LockHeld:
        results.put("refused")  # type: ignore[attr-defined]


def test_of_many_racers_one_wins(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    barrier, results = spawn.Barrier(4), spawn.Queue()
    racers = [spawn.Process(target=_race, args=(tmp_path / "lock", barrier, results)) for _ in range(4)]
    for racer in racers:
        racer.start()
    try:
        assert sorted(results.get(timeout=LIMIT) for _ in racers) == ["refused"] * 3 + ["won"]
    finally:
        for racer in racers:
            racer.kill()
            racer.join()
    assert wait_until(lambda: current_holder(tmp_path / "lock") is None, LIMIT)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Outside of pytest's own folder, which is closed to other users."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users, so root")
def test_two_users_share_it(open_folder: Path) -> None:
    """In a sticky folder under fs.protected_regular, which forbids O_CREAT on another user's file."""
    open_folder.chmod(0o755)
    folder = open_folder / "lock"
    with gpu_lock(folder, wait_seconds=0, tell=pytest.fail):
        pass
    child = multiprocessing.get_context("fork").Process(target=_take_as_nobody, args=(folder,))
    child.start()
    child.join(LIMIT)
    assert child.exitcode == 0
    with gpu_lock(folder, wait_seconds=0, tell=pytest.fail):
        pass


def _take_as_nobody(folder: Path) -> None:
    os.setgid(65534)
    os.setuid(65534)
    with gpu_lock(folder, wait_seconds=0, tell=lambda _: None) as lock:
        lock.name_holder("theirs", Session(own_identity(), "x"))
