"""The stage of a demo: one arm up at a time, and nothing left when the curtain falls, whatever happened."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Self

from draftgate.engine.command import EngineCommand
from draftgate.profile.model import Profile
from draftgate.runtime import native
from draftgate.runtime.state import Run, Status

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Arm:
    """A profile as it is to be started.

    Attributes:
        name, sets: as on the command line; the launcher reads the profile anew from them.
    """

    name: str
    sets: tuple[str, ...]
    profile: Profile
    command: EngineCommand


class Interrupts:
    """Ctrl-C, SIGTERM and a closed terminal as exceptions, at moments when they do no harm.

    While `held`, a signal waits. Only the first one counts: from then on the way leads out, and a second
    Ctrl-C must not cut the stopping short.
    """

    def __init__(self) -> None:
        self._holding = False
        self._over = False
        self._pending: int | None = None

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._take) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Signals in here are raised at its end."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
        if self._pending is not None:
            self._raise(self._pending)

    def over(self) -> None:
        """From now on signals do nothing."""
        self._over = True

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._holding:
            self._pending = number
        elif not self._over:
            self._raise(number)

    def _raise(self, number: int) -> None:
        self._over = True
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)


class Stage:
    """Starts and stops arms in the state folder; a context manager that stops what still runs.

    Args:
        tell: gets lines for the user.
    """

    def __init__(self, interrupts: Interrupts, tell: Callable[[str], None]) -> None:
        self._interrupts = interrupts
        self._tell = tell
        self._up = False
        self._shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interrupts.over()
        if self._up:
            native.down(self._try_to_tell, now=True)

    def start(self, arm: Arm, *, sidecar: bool) -> Run:
        """Start ``arm`` and wait until it has generated a token.

        Raises:
            AlreadyRunning, LockHeld, EngineFailed, TimedOut: see `native.up` and `native.await_ready`.
        """
        planned = native.plan(
            arm.name,
            arm.sets,
            arm.profile,
            arm.command.base_url,
            sidecar=sidecar,
            wait_lock_seconds=0.0,
        )
        with self._interrupts.held():
            run = native.up(planned)
            self._up = True
        native.await_ready(self._show)
        return run

    def stop(self) -> None:
        """Stop the arm; a signal meanwhile is raised when it has stopped."""
        with self._interrupts.held():
            native.down(self._tell)
            self._up = False

    def keep(self) -> None:
        """Leave running what runs."""
        self._up = False

    def _show(self, status: Status) -> None:
        if status.phase is not None and status.phase != self._shown:
            self._shown = status.phase
            self._tell(f"  {status.phase}")

    def _try_to_tell(self, text: str) -> None:
        # The reader of a pipe may have left: stopping goes on all the same.
        with suppress(OSError):
            self._tell(text)
