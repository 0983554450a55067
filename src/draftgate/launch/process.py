"""The engine's process under its guard, seen from the launcher."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from draftgate.host.processes import Process, identify
from draftgate.host.session import LAUNCH_ID, ORPHAN_GRACE_SECONDS, Session
from draftgate.launch.guard import Order
from draftgate.launch.log import EngineLog

# vLLM can hang for ever after a drain that overran, until a client hangs up.
AFTER_DRAIN_SECONDS = 10.0
# What the guard needs beyond its limits, on a machine that is busy.
_MARGIN_SECONDS = 15.0


@dataclass(frozen=True)
class Started:
    """What is to be started, all of it known.

    Attributes:
        environment: the engine's, without the launch's mark.
        key_config: a flag, and what the file that it is to name says; the file lies in ``scratch``.
        scratch: working folder of the engine; its name is the launch's id.
    """

    argv: tuple[str, ...]
    environment: dict[str, str]
    scratch: Path
    drain_seconds: float
    key_config: tuple[str, str] | None = None

    @property
    def key_file(self) -> Path:
        return self.scratch / "key.yaml"

    def whole_argv(self) -> tuple[str, ...]:
        return (*self.argv, self.key_config[0], str(self.key_file)) if self.key_config else self.argv


class EngineProcess:
    """Guard, engine and the thread that reads their log. Nothing of the engine runs before `go`."""

    def __init__(self, what: Started, lock_descriptor: int) -> None:
        self._what = what
        what.scratch.mkdir(mode=0o700, parents=True)
        if what.key_config:
            what.key_file.touch(mode=0o600)
            what.key_file.write_text(what.key_config[1], encoding="utf-8")
        read_end, write_end = os.pipe()
        self._log_end = read_end
        try:
            self._guard = subprocess.Popen(
                # Safe path: a folder named draftgate where it runs is not our package.
                (sys.executable, "-P", "-m", "draftgate.launch.guard"),
                stdin=subprocess.PIPE,
                stdout=write_end,
                stderr=write_end,
                cwd=what.scratch,
                env={LAUNCH_ID: what.scratch.name},
                pass_fds=(lock_descriptor, read_end),
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        leader = identify(self._guard.pid)
        if leader is None:
            raise ChildProcessError("the guard died at once")
        self.session = Session(leader, what.scratch.name)

    def go(self, log: EngineLog, ended: Callable[[int], None]) -> None:
        """Start the engine.

        Args:
            ended: called from a thread, with the engine's status, when all that it wrote has been read.
        """
        what = self._what
        order = Order(
            argv=what.whole_argv(),
            environment={**what.environment, LAUNCH_ID: what.scratch.name},
            folder=str(what.scratch),
            log=self._log_end,
            stop_seconds=what.drain_seconds + AFTER_DRAIN_SECONDS,
            grace_seconds=ORPHAN_GRACE_SECONDS,
        )
        reader = threading.Thread(target=self._read_log, args=(log,), daemon=True)
        reader.start()

        def wait() -> None:
            status = self._guard.wait()
            # Whoever left the session may hold the pipe open; its words are not waited for.
            reader.join(2.0)
            ended(status if status >= 0 else 128 - status)

        threading.Thread(target=wait, daemon=True).start()
        assert self._guard.stdin is not None  # noqa: S101  (we made the pipe)
        try:
            self._guard.stdin.write(order.line())
            self._guard.stdin.flush()
        except BrokenPipeError:
            return  # it is dead, and `ended` will say so

    def stop(self) -> None:
        """Let running requests end, then the engine; the guard keeps the limit."""
        self._guard.send_signal(signal.SIGTERM)

    def stop_now(self) -> None:
        self._guard.send_signal(signal.SIGINT)

    def finish(self) -> tuple[Process, ...]:
        """See to it that nothing is left, whatever became of the guard; returns what could not be ended."""
        if self._guard.poll() is None:
            self.stop_now()
            try:
                self._guard.wait(ORPHAN_GRACE_SECONDS + _MARGIN_SECONDS)
            except subprocess.TimeoutExpired:
                self._guard.kill()
        left = self.session.end(ORPHAN_GRACE_SECONDS)
        shutil.rmtree(self._what.scratch, ignore_errors=True)
        return left

    def _read_log(self, log: EngineLog) -> None:
        while data := os.read(self._log_end, 65536):
            log.feed(data)
        log.end()


def stop_limit(drain_seconds: float) -> float:
    """From SIGTERM to the launcher until nothing of the engine can be left, in seconds."""
    return drain_seconds + AFTER_DRAIN_SECONDS + ORPHAN_GRACE_SECONDS + _MARGIN_SECONDS
