"""Every error a user can meet, each with its exit code.

DraftgateError
├── ProfileError          3   a profile, or what was set on top of it, is wrong (all faults at once)
├── UnknownName           4   no profile, layer or engine of that name
├── EngineMissing         5   the engine's environment is not installed, or is broken
├── InstallFailed         6   the environment could not be made (Python, disk, network, a hash)
├── AlreadyRunning        7   this state folder already runs something
├── LockHeld              8   another engine holds the GPU lock
├── EngineFailed          9   the engine ended before it was ready, or by itself later
├── EngineUnreachable    10   no engine answers at that address
├── NotRunning           11   nothing runs here
├── TimedOut             12   something did not happen within its limit
├── BenchRefused         13   the measurement would not mean what it says
├── FolderUnusable       14   a folder that draftgate needs cannot be made or written
├── AddressUnusable      15   an address cannot be listened on (taken, or not this machine's)
├── CheckpointUnreadable 16   a model's folder is not there, or a file in it is missing or broken
├── AuxLayersRefused     17   an engine cannot feed the drafter the layers that it needs, or not load it
└── DockerUnusable       18   Docker or Compose is not here, does not run, is too old or forbidden, or failed
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ExitCode(enum.IntEnum):
    """Exit codes of the command line; 2 is Typer's own for wrong usage, 128+n is a signal's."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    PROFILE = 3
    UNKNOWN_NAME = 4
    ENGINE_MISSING = 5
    INSTALL_FAILED = 6
    ALREADY_RUNNING = 7
    LOCK_HELD = 8
    ENGINE_FAILED = 9
    UNREACHABLE = 10
    NOT_RUNNING = 11
    TIMED_OUT = 12
    BENCH_REFUSED = 13
    FOLDER_UNUSABLE = 14
    ADDRESS_UNUSABLE = 15
    CHECKPOINT_UNREADABLE = 16
    AUX_LAYERS_REFUSED = 17
    DOCKER_UNUSABLE = 18
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


class DraftgateError(Exception):
    """An error with what happened, where, why, and the command to run next.

    Args:
        what: one sentence, no full stop needed.
        where: the file, the path in the profile, the process or the address.
        why: the reason, when it is known.
        next_step: a command to run, or what to change.
    """

    exit_code: ExitCode = ExitCode.INTERNAL

    def __init__(
        self, what: str, *, where: str | None = None, why: str | None = None, next_step: str | None = None
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.next_step = next_step

    def lines(self) -> list[str]:
        """The message as it is printed, without colours."""
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.why:
            lines.append(f"  why:   {self.why}")
        if self.next_step:
            lines.append(f"  next:  {self.next_step}")
        return lines

    def as_json(self) -> dict[str, object]:
        return {
            "error": type(self).__name__,
            "exit_code": int(self.exit_code),
            "what": self.what,
            "where": self.where,
            "why": self.why,
            "next": self.next_step,
        }


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a profile.

    Attributes:
        path: dotted path in the profile, such as ``speculation.num_speculative_tokens``.
        origin: the file, environment variable or option that says so.
        what: the fault in one sentence.
        nearest: the known name most like the one given, when there is one.
    """

    path: str
    origin: str
    what: str
    nearest: str | None = None

    def line(self) -> str:
        hint = f"; did you mean {self.nearest!r}?" if self.nearest else ""
        return f"{self.origin}: {self.path}: {self.what}{hint}"


class ProfileError(DraftgateError):
    """All faults of a profile together: nothing was started."""

    exit_code = ExitCode.PROFILE

    def __init__(self, profile: str, faults: tuple[Fault, ...]) -> None:
        self.profile = profile
        self.faults = faults
        plural = "s" if len(faults) > 1 else ""
        super().__init__(
            f"profile {profile!r} has {len(faults)} fault{plural}; nothing was started",
            next_step=f"draftgate show {profile} --explain, once it is mended",
        )

    def lines(self) -> list[str]:
        head, *rest = super().lines()
        return [head, *(f"  - {fault.line()}" for fault in self.faults), *rest]

    def as_json(self) -> dict[str, object]:
        faults = [
            {"path": f.path, "origin": f.origin, "what": f.what, "nearest": f.nearest} for f in self.faults
        ]
        return {**super().as_json(), "faults": faults}


class UnknownName(DraftgateError):
    exit_code = ExitCode.UNKNOWN_NAME


class EngineMissing(DraftgateError):
    exit_code = ExitCode.ENGINE_MISSING


class InstallFailed(DraftgateError):
    exit_code = ExitCode.INSTALL_FAILED


class AlreadyRunning(DraftgateError):
    exit_code = ExitCode.ALREADY_RUNNING


class LockHeld(DraftgateError):
    exit_code = ExitCode.LOCK_HELD


class EngineFailed(DraftgateError):
    exit_code = ExitCode.ENGINE_FAILED


class EngineUnreachable(DraftgateError):
    exit_code = ExitCode.UNREACHABLE


class NotRunning(DraftgateError):
    exit_code = ExitCode.NOT_RUNNING


class TimedOut(DraftgateError):
    exit_code = ExitCode.TIMED_OUT


class BenchRefused(DraftgateError):
    exit_code = ExitCode.BENCH_REFUSED


class FolderUnusable(DraftgateError):
    exit_code = ExitCode.FOLDER_UNUSABLE


class AddressUnusable(DraftgateError):
    exit_code = ExitCode.ADDRESS_UNUSABLE


class CheckpointUnreadable(DraftgateError):
    exit_code = ExitCode.CHECKPOINT_UNREADABLE


class AuxLayersRefused(DraftgateError):
    exit_code = ExitCode.AUX_LAYERS_REFUSED


class DockerUnusable(DraftgateError):
    exit_code = ExitCode.DOCKER_UNUSABLE


class AuxLayersUnknown(AuxLayersRefused):
    """What this engine does with this target was never read, so nothing is said about it."""
