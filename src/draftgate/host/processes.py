"""Processes as the kernel shows them in /proc; standard library only, since the guard imports it too.

A pid alone names nobody: numbers come round again, and after a reboot all of them are new. So a process is
known by pid, start time, boot and pid namespace together (proc(5): field 22 of ``stat``;
``sys/kernel/random/boot_id``).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
_POLL_SECONDS = 0.05
_KILL_SECONDS = 10.0
_EXEC_SECONDS = 1.0


@dataclass(frozen=True)
class Process:
    """One live process. ``start_ticks`` counts clock ticks since boot; ``session`` is its session id."""

    pid: int
    parent: int
    session: int
    start_ticks: int


@dataclass(frozen=True)
class ProcessIdentity:
    """One process for good; see the module's text."""

    pid: int
    start_ticks: int
    boot_id: str
    pid_namespace: str

    def is_here(self) -> bool:
        """Whether its pid means anything to us: same boot, same pid namespace."""
        return (self.boot_id, self.pid_namespace) == (boot_id(), pid_namespace())

    def alive(self) -> bool:
        """Whether that very process lives. A zombie does not; nor does one of another boot or namespace."""
        found = find(self.pid) if self.is_here() else None
        return found is not None and found.start_ticks == self.start_ticks


@cache
def boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


@cache
def pid_namespace() -> str:
    # Containers of one host share the boot, and perhaps the folder of the GPU lock, but not their pids.
    return os.readlink("/proc/self/ns/pid")


def find(pid: int) -> Process | None:
    """The process with that pid, or None where there is none or only a zombie."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name, in parentheses, may hold blanks and parentheses; what follows the last one does not.
    fields = text[text.rindex(")") + 2 :].split()
    if fields[0] in "ZX":
        return None
    return Process(pid, parent=int(fields[1]), session=int(fields[3]), start_ticks=int(fields[19]))


def processes() -> tuple[Process, ...]:
    """All live processes of this pid namespace."""
    pids = (int(entry) for entry in os.listdir(_PROC) if entry.isdigit())
    return tuple(process for pid in pids if (process := find(pid)) is not None)


def identify(pid: int) -> ProcessIdentity | None:
    process = find(pid)
    if process is None:
        return None
    return ProcessIdentity(process.pid, process.start_ticks, boot_id(), pid_namespace())


def own_identity() -> ProcessIdentity:
    identity = identify(os.getpid())
    assert identity is not None  # noqa: S101  (we are running)
    return identity


def command_line(pid: int, limit: int = 120) -> str | None:
    """What it runs, shortened to ``limit`` characters; None where it is gone or not ours to read."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    text = " ".join(word for word in words if word)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def environment_variable(pid: int, name: str) -> str | None:
    """The value that ``pid`` was started with; "" where it has none; None where it is not ours to read."""
    try:
        content = (_PROC / str(pid) / "environ").read_bytes()
        if not content:
            wait_until(lambda: not _executes(pid), _EXEC_SECONDS)
            content = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    prefix = name.encode() + b"="
    values = (entry[len(prefix) :] for entry in content.split(b"\0") if entry.startswith(prefix))
    return next(values, b"").decode(errors="replace")


def _executes(pid: int) -> bool:
    """Whether the kernel is about to run a new program in it, whose words and environment do not show yet.

    Whoever started it may have been told already: the pipe that says so is closed before.
    """
    try:
        # A thread of the kernel has no words either, and no program.
        os.readlink(_PROC / str(pid) / "exe")
        return not (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False


def working_folder(pid: int) -> str | None:
    try:
        return os.readlink(_PROC / str(pid) / "cwd")
    except OSError:
        return None


def send(process: Process | ProcessIdentity, number: signal.Signals) -> bool:
    """Signal that very process, never one that got its pid meanwhile. False where it is gone.

    Raises:
        PermissionError: it belongs to another user.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except OSError:
        descriptor = None  # an old kernel, or a container's filter that does not know it
    try:
        found = find(process.pid)
        if found is None or found.start_ticks != process.start_ticks:
            return False
        if descriptor is None:
            os.kill(process.pid, number)
        else:
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return True


def end_all(members: Callable[[], Iterable[Process]], grace_seconds: float) -> tuple[Process, ...]:
    """End all processes that ``members`` names, children born meanwhile included.

    SIGTERM goes to the topmost only, since an engine core that is told to stop ends its workers itself, in
    order; what lives after ``grace_seconds`` (0: at once) gets SIGKILL.

    Returns:
        Those that could not be ended: another user's, or stuck in the kernel.
    """
    if grace_seconds > 0:
        found = tuple(members())
        pids = {process.pid for process in found}
        _send_each((process for process in found if process.parent not in pids), signal.SIGTERM)
        wait_until(lambda: not any(members()), grace_seconds)
    # multiprocessing's resource tracker removes shared memory once those who use it are gone: it goes last.
    _send_each((process for process in members() if not _tracks_resources(process)), signal.SIGKILL)
    wait_until(lambda: not any(members()), 1.0)

    def killed() -> bool:
        _send_each(members(), signal.SIGKILL)
        return not any(members())

    wait_until(killed, _KILL_SECONDS)
    return tuple(members())


def wait_until(condition: Callable[[], bool], limit_seconds: float) -> bool:
    """Whether ``condition`` came true within the limit."""
    deadline = time.monotonic() + limit_seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _send_each(targets: Iterable[Process], number: signal.Signals) -> None:
    for process in targets:
        try:
            send(process, number)
        except PermissionError:
            continue


def _tracks_resources(process: Process) -> bool:
    return "multiprocessing.resource_tracker" in (command_line(process.pid, limit=1000) or "")
