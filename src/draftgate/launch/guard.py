"""The guard: leader of the engine's session, which outlives the launcher just long enough to end the engine.

It runs as a program of its own (``python -m draftgate.launch.guard``) and imports little, since it must work
when all else is being killed. The launcher writes one line, the `Order`, into its standard input and keeps
that open: end of file means that the launcher is gone, however it went. (A parent-death signal says the same,
but of the launcher's thread, and needs a check for the race at the start.)

    order → engine as child → it ends:                  end the rest of the session
                              SIGTERM, or end of file:  SIGTERM to the engine alone, drain, end all
                              SIGINT:                   end all at once

The engine gets a parent-death signal of its own, for the case that the guard is killed with SIGKILL.
Descendants that leave the session become the guard's children when orphaned, so they are ended too.

The exit status is the engine's: its code, or 128 + n where signal n ended it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from draftgate.host.processes import Process, end_all, processes

CANNOT_START = 127
# From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_SECONDS = 0.2
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Order:
    """What the guard is to run.

    Attributes:
        environment: the engine's, whole; the API key comes this way, so the order is written to a pipe only.
        log: the read end of the engine's log pipe; emptied when the launcher no longer does.
        stop_seconds: from SIGTERM until the engine must have ended.
        grace_seconds: for what the engine leaves behind, from SIGTERM to SIGKILL.
    """

    argv: tuple[str, ...]
    environment: dict[str, str]
    folder: str
    log: int
    stop_seconds: float
    grace_seconds: float

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


class Guard:
    """One engine from start to end."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._polite = False
        self._at_once = False
        self._engine: subprocess.Popen[bytes]

    def run(self) -> int:
        """Run the engine; returns the guard's exit status."""
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        try:
            self._engine = subprocess.Popen(
                self._order.argv,
                env=self._order.environment,
                cwd=self._order.folder,
                stdin=subprocess.DEVNULL,
                preexec_fn=_die_politely_with_parent,
            )
        except OSError as error:
            print(f"cannot start {self._order.argv[0]}: {error.strerror}", file=sys.stderr)
            return CANNOT_START
        self._wait()
        left = end_all(self._others, 0 if self._at_once else self._order.grace_seconds)
        code = self._engine.wait() if not left else self._engine.poll()
        _reap()
        return _status(code)

    def _on_signal(self, number: int, _frame: object) -> None:
        self._polite = True
        self._at_once = self._at_once or number == signal.SIGINT

    def _wait(self) -> None:
        """Until the engine has ended or must end now."""
        deadline: float | None = None
        sources = [sys.stdin.fileno()]
        while self._engine.poll() is None and not self._at_once:
            now = time.monotonic()
            if self._polite and deadline is None:
                self._engine.send_signal(signal.SIGTERM)
                deadline = now + self._order.stop_seconds
            if deadline is not None and now >= deadline:
                _say(f"the engine lives {self._order.stop_seconds:g} s after SIGTERM; ending it by force")
                # Its core, an orphan then, still gets the chance to end in order.
                self._engine.kill()
                return
            self._reap_orphans()
            for source in select.select(sources, [], [], _POLL_SECONDS)[0]:
                if os.read(source, 65536):
                    continue
                if source == sys.stdin.fileno():
                    self._polite = True
                    # The engine would stop at a full pipe, in the middle of its drain.
                    sources = [self._order.log]
                else:
                    sources = []

    def _others(self) -> Iterable[Process]:
        """All of the session and all descendants, without the guard itself."""
        everybody = processes()
        ours = {os.getpid()}
        while True:
            more = {p.pid for p in everybody if p.parent in ours or p.session == os.getpid()} - ours
            if not more:
                break
            ours |= more
        return [process for process in everybody if process.pid in ours - {os.getpid()}]

    def _reap_orphans(self) -> None:
        """Reap an adopted child that has ended; the engine itself is Popen's to reap."""
        with contextlib.suppress(ChildProcessError):
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None and ended.si_pid != self._engine.pid:
                os.waitpid(ended.si_pid, os.WNOHANG)


def _die_politely_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _status(code: int | None) -> int:
    if code is None:
        return 128 + signal.SIGKILL
    return code if code >= 0 else 128 - code


def _say(text: str) -> None:
    # Nobody may be reading any more.
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def main() -> int:
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return 0  # the launcher died before it gave the order
    fields = json.loads(line)
    return Guard(Order(**{**fields, "argv": tuple(fields["argv"])})).run()


if __name__ == "__main__":
    sys.exit(main())
