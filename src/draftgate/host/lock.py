"""The GPU lock: one engine at a time on the box, whoever starts it and from which container.

It is an flock, so the kernel frees it when the last holder of the descriptor dies; launcher and guard both
hold it. Who holds it is written into the locked file itself. A second file would have to be replaced by
renaming, which a sticky folder refuses for another user's file, and would have to be kept in step.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from draftgate.errors import LockHeld
from draftgate.host.files import unusable
from draftgate.host.processes import ProcessIdentity, command_line
from draftgate.host.session import ORPHAN_GRACE_SECONDS, Session

_RECORD_BYTES = 4096
_POLL_SECONDS = 0.1
# Whoever asks for the holder takes the lock for a moment; that must not turn away a launch.
_PATIENCE_SECONDS = 0.3
_SETTING = "DRAFTGATE_LOCK_DIR"
# The folder may be everybody's: a link planted there must not lead us to another file.
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True)
class Holder:
    """Who holds the lock, or held it last.

    Attributes:
        launcher_pid: of `draftgate launch`, in its own pid namespace.
        acquired_at: seconds since the epoch.
    """

    profile: str
    user: str
    launcher_pid: int
    session: Session
    acquired_at: float

    def describe(self) -> str:
        since = datetime.fromtimestamp(self.acquired_at, UTC).astimezone().isoformat(timespec="seconds")
        return (
            f"profile {self.profile!r} of user {self.user} (launcher pid {self.launcher_pid}) since {since}"
        )


@dataclass(frozen=True)
class HeldLock:
    """The lock while we hold it.

    Attributes:
        descriptor: to be inherited by the guard, so that the lock outlives a killed launcher.
    """

    descriptor: int

    def name_holder(self, profile: str, session: Session) -> None:
        """Write down who holds it. To be called before anything of the session can do harm."""
        holder = Holder(profile, _user(), os.getpid(), session, time.time())
        _write(self.descriptor, json.dumps(asdict(holder)))

    def forget_holder(self) -> None:
        """Say that nothing of the session is left."""
        _write(self.descriptor, "")


@contextmanager
def gpu_lock(folder: Path, *, wait_seconds: float, tell: Callable[[str], None]) -> Iterator[HeldLock]:
    """Hold the GPU lock; sweep what a dead holder left.

    Args:
        wait_seconds: 0 refuses at once.
        tell: takes a line for the user: whom we wait for, what is swept.

    Raises:
        LockHeld: somebody holds it, or what a dead holder left is another user's.
        FolderUnusable: the lock's folder or file cannot be made or opened.
    """
    path = folder / "gpu.lock"
    descriptor = _open(path)
    try:
        _acquire(descriptor, path, wait_seconds, tell)
        _sweep(descriptor, path, tell)
        yield HeldLock(descriptor)
    finally:
        # Never LOCK_UN: that would free it for the guard too, which may still be ending the engine.
        os.close(descriptor)


def current_holder(folder: Path) -> Holder | None:
    """Who holds the lock now; None where nobody does or it does not say."""
    try:
        descriptor = os.open(folder / "gpu.lock", _FLAGS)
    except OSError:
        return None
    try:
        return None if _try(descriptor) else _read(descriptor)
    finally:
        os.close(descriptor)


def refuse_if_held(folder: Path) -> None:
    """Raise LockHeld where the lock is held now; to check before something is started in the background."""
    try:
        descriptor = os.open(folder / "gpu.lock", _FLAGS)
    except FileNotFoundError:
        return
    except OSError as error:
        raise unusable(folder, _SETTING, error) from error
    try:
        _acquire(descriptor, folder / "gpu.lock", 0, lambda _: None)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            # For all users of the box, like /tmp; sticky, so that nobody removes the file under a holder.
            path.parent.chmod(0o1777)
        for _ in range(10):
            try:
                # Without O_CREAT: fs.protected_regular forbids it for another user's file in a sticky folder.
                return os.open(path, _FLAGS)
            except FileNotFoundError:
                pass
            try:
                descriptor = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)
            except FileExistsError:
                continue
            os.fchmod(descriptor, 0o666)
            return descriptor
    except OSError as error:
        raise unusable(path.parent, _SETTING, error) from error
    raise unusable(path.parent, _SETTING, OSError("gpu.lock appears and vanishes"))


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _acquire(descriptor: int, path: Path, wait_seconds: float, tell: Callable[[str], None]) -> None:
    deadline = time.monotonic() + max(wait_seconds, _PATIENCE_SECONDS)
    told = False
    while not _try(descriptor):
        holder = _read(descriptor)
        who = holder.describe() if holder else "an unnamed process"
        if time.monotonic() >= deadline:
            waited = f" after {wait_seconds:g} s" if wait_seconds else ""
            raise LockHeld(
                f"the GPU lock is still held{waited} by {who}"
                if waited
                else f"the GPU lock is held by {who}",
                where=str(path),
                why="one engine at a time is the rule of the box",
                next_step="draftgate down (as that user), or wait for it: --wait-lock SECONDS",
            )
        if wait_seconds and not told:
            tell(f"the GPU lock is held by {who}; waiting up to {wait_seconds:g} s")
            told = True
        time.sleep(_POLL_SECONDS)


def _sweep(descriptor: int, path: Path, tell: Callable[[str], None]) -> None:
    """End what the last holder left behind; its lock is free, so its launcher and guard are dead."""
    last = _read(descriptor)
    if last is None:
        return
    found = last.session.members()
    if found:
        tell(f"ending {len(found)} processes that a dead launch left: {last.describe()}")
    left = last.session.end(ORPHAN_GRACE_SECONDS) if found else ()
    if left:
        names = "; ".join(f"pid {process.pid}: {command_line(process.pid)}" for process in left)
        raise LockHeld(
            f"processes of a dead launch still live: {last.describe()}",
            where=str(path),
            why=f"they could not be ended: {names}",
            next_step=f"end them as user {last.user}",
        )
    _write(descriptor, "")


def _write(descriptor: int, text: str) -> None:
    # One write of one size, so that a reader, who cannot take the lock, sees one record or the other.
    os.pwrite(descriptor, text.encode().ljust(_RECORD_BYTES), 0)


def _read(descriptor: int) -> Holder | None:
    try:
        fields = json.loads(os.pread(descriptor, _RECORD_BYTES, 0))
        leader = ProcessIdentity(**fields["session"]["leader"])
        session = Session(leader, fields["session"]["launch_id"])
        return Holder(
            fields["profile"], fields["user"], fields["launcher_pid"], session, fields["acquired_at"]
        )
    except (ValueError, KeyError, TypeError):
        return None


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
